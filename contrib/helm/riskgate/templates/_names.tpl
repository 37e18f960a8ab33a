{{/* The name of all objects: that of the release, then that of the chart if it is not in it. */}}
{{- define "riskgate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels by which Services and other objects find the pods. They never change. */}}
{{- define "riskgate.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{/* The labels of an object. The pod of the Job has another component than the gateway's pods. */}}
{{- define "riskgate.labelsOfComponent" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "riskgate.labels" -}}
{{- include "riskgate.labelsOfComponent" (dict "root" . "component" "gateway") -}}
{{- end -}}

{{- define "riskgate.serviceAccountName" -}}
{{- $made := ternary (include "riskgate.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{- define "riskgate.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* "address:port" to listen on; an IPv6 address needs brackets. */}}
{{- define "riskgate.listenAddress" -}}
{{- $host := ternary "[::]" .root.Values.bindAddress (eq .root.Values.bindAddress "::") -}}
{{- printf "%s:%d" $host .port -}}
{{- end -}}
