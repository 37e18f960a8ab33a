{{/* Refuses values that the schema allows one by one, but that do not fit together. */}}
{{- define "riskgate.checkValues" -}}
{{- include "riskgate.checkStore" . -}}
{{- include "riskgate.checkConfig" . -}}
{{- include "riskgate.checkEnv" . -}}
{{- include "riskgate.checkLabels" . -}}
{{- if and .Values.tls.enabled (not .Values.tls.secretNames) -}}
{{- fail "tls.secretNames: expected a Secret, because tls.enabled is true, but found none" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: expected a host, because ingress.enabled is true, but found none" -}}
{{- end -}}
{{- end -}}

{{- define "riskgate.checkStore" -}}
{{- if eq .Values.store.kind "sqlite" -}}
{{- $why := print
  "because with store.kind \"sqlite\" the keys and counts are in a file of one pod; "
  "set store.kind to \"redis\" for several pods" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "replicas: expected 1, %s, but found %d" $why (int .Values.replicas)) -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail (printf "autoscaling.enabled: expected false, %s, but found true" $why) -}}
{{- end -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $expected := printf "expected minReplicas, %d, or more" (int .minReplicas) -}}
{{- fail (printf "autoscaling.maxReplicas: %s, but found %d" $expected (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "riskgate.checkConfig" -}}
{{- $config := .Values.config | fromToml -}}
{{- with get $config "Error" -}}
{{- fail (printf "config: expected TOML, but found an error: %s" (toString .)) -}}
{{- end -}}
{{- range $name, $value := $config -}}
{{- if not (or (kindIs "map" $value) (and (kindIs "slice" $value) (ne $name "check"))) -}}
{{- fail (printf "config: %s: expected a section, [%s], but found %v" $name $name $value) -}}
{{- end -}}
{{- end -}}
{{- range $setting, $value := include "riskgate.ownSettings" . | fromYaml -}}
{{- $words := splitList "." $setting -}}
{{- $section := get $config (first $words) -}}
{{- $isFound := and (kindIs "map" $section) (hasKey $section (last $words)) -}}
{{- /* A list [[admin.token]] has further tokens, beside that of the Secret. */ -}}
{{- $isList := and $isFound (kindIs "slice" (get $section (last $words))) -}}
{{- if and $isFound (not (and $isList (eq $setting "admin.token"))) -}}
{{- $expected := printf "expected the chart to set it, from %s" $value -}}
{{- fail (printf "config: %s: %s, but found it in the text" $setting $expected) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "riskgate.checkEnv" -}}
{{- $own := include "riskgate.ownSettings" . | fromYaml -}}
{{- range .Values.extraEnv -}}
{{- $setting := .name | trimPrefix "RISKGATE__" | lower | replace "__" "." -}}
{{- if and (hasPrefix "RISKGATE__" .name) (hasKey $own $setting) -}}
{{- $expected := printf "expected the chart to set it, from %s" (get $own $setting) -}}
{{- fail (printf "extraEnv: %s: %s, but found it in the list" .name $expected) -}}
{{- end -}}
{{- if and (eq $setting "upstream.health_interval") (not $.Values.upstream.servers) -}}
{{- $expected := print
  "expected no such variable, because upstream.servers is empty, so that the chart sets it" -}}
{{- fail (printf "extraEnv: %s: %s, but found it in the list" .name $expected) -}}
{{- end -}}
{{- if eq .name "RISKGATE_CONFIG" -}}
{{- fail "extraEnv: RISKGATE_CONFIG: expected the chart to set it, but found it in the list" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "riskgate.checkLabels" -}}
{{- range $name, $_ := include "riskgate.selectorLabels" . | fromYaml -}}
{{- if hasKey $.Values.podLabels $name -}}
{{- $expected := "expected the chart to set it, because Services find the pods by it" -}}
{{- fail (printf "podLabels: %s: %s, but found it in the values" $name $expected) -}}
{{- end -}}
{{- end -}}
{{- end -}}
