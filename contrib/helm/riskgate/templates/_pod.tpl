{{/* How to reach the store: environment variables of the gateway and of the Job. `extraEnv` is in
them, because it may have settings of the store. */}}
{{- define "riskgate.storeEnv" -}}
{{- if eq .Values.store.kind "redis" }}
- name: RISKGATE__STORE__URL_FILE
  value: /run/secrets/riskgate/store/url
- name: RISKGATE__STORE__WAIT_REPLICAS
  value: {{ .Values.store.redis.waitReplicas | quote }}
{{- if .Values.store.redis.caSecretName }}
- name: RISKGATE__STORE__TLS_CA
  value: /run/secrets/riskgate/store-ca/ca.crt
{{- end }}
{{- else }}
- name: RISKGATE__STORE__URL
  value: sqlite:/var/lib/riskgate/riskgate.db
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "riskgate.envFrom" -}}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "riskgate.storeVolumes" -}}
{{- with .Values.store.redis }}
- name: store
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items:
      - key: {{ .secretKey }}
        path: url
{{- if .caSecretName }}
- name: store-ca
  secret:
    secretName: {{ .caSecretName }}
    defaultMode: 0440
    items:
      - key: {{ .caSecretKey }}
        path: ca.crt
{{- end }}
{{- end }}
{{- end -}}

{{- define "riskgate.storeVolumeMounts" -}}
- name: store
  mountPath: /run/secrets/riskgate/store
  readOnly: true
{{- if .Values.store.redis.caSecretName }}
- name: store-ca
  mountPath: /run/secrets/riskgate/store-ca
  readOnly: true
{{- end }}
{{- end -}}

{{/* The variables that override the config file; _config.tpl lists the settings. */}}
{{- define "riskgate.env" -}}
- name: RISKGATE_CONFIG
  value: /etc/riskgate/riskgate.toml
- name: RISKGATE__LISTEN__HTTP
  value: {{ include "riskgate.listenAddress" (dict "root" . "port" 8080) | quote }}
- name: RISKGATE__LISTEN__ADMIN
  value: {{ include "riskgate.listenAddress" (dict "root" . "port" 9090) | quote }}
{{- if .Values.tls.enabled }}
- name: RISKGATE__LISTEN__HTTPS
  value: {{ include "riskgate.listenAddress" (dict "root" . "port" 8443) | quote }}
{{- end }}
- name: RISKGATE__ADMIN__TOKEN_FILE
  value: /run/secrets/riskgate/admin/token
- name: RISKGATE__ADMIN__METRICS_PUBLIC
  value: {{ .Values.admin.metricsPublic | quote }}
{{- if .Values.upstream.servers }}
- name: RISKGATE__UPSTREAM__SERVERS
  value: {{ join "," .Values.upstream.servers | quote }}
{{- else if not (hasKey (get (.Values.config | fromToml) "upstream" | default dict) "health_interval") }}
# There is no server to check.
- name: RISKGATE__UPSTREAM__HEALTH_INTERVAL
  value: "0"
{{- end }}
{{- if .Values.overrides }}
- name: RISKGATE__TABLE__OVERRIDES
  value: /etc/riskgate/overrides.csv
{{- end }}
{{- if .Values.keys.secretName }}
- name: RISKGATE__KEYS__FILE
  value: /run/secrets/riskgate/keys/keys.toml
{{- end }}
- name: RISKGATE__DRAIN__DELAY
  value: {{ printf "%ds" (int .Values.drain.delaySeconds) | quote }}
- name: RISKGATE__DRAIN__GRACE
  value: {{ printf "%ds" (int .Values.drain.graceSeconds) | quote }}
# Not on the volume of the store: the kubelet makes what is there writable for the group.
- name: RISKGATE__PROCESS__RUNTIME_DIR
  value: /run/riskgate/process
{{- include "riskgate.storeEnv" . }}
{{- end -}}

{{- define "riskgate.volumeMounts" -}}
- name: config
  mountPath: /etc/riskgate
  readOnly: true
- name: state
  mountPath: /var/lib/riskgate
- name: run
  mountPath: /run/riskgate
- name: admin
  mountPath: /run/secrets/riskgate/admin
  readOnly: true
{{- if eq .Values.store.kind "redis" }}
{{ include "riskgate.storeVolumeMounts" . }}
{{- end }}
{{- if .Values.keys.secretName }}
- name: keys
  mountPath: /run/secrets/riskgate/keys
  readOnly: true
{{- end }}
{{- if .Values.tls.enabled }}
{{- range $index, $name := .Values.tls.secretNames }}
- name: tls-{{ $index }}
  mountPath: /run/secrets/riskgate/tls/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes of the pod. Their mounts have no subPath, so that changes reach riskgate. */}}
{{- define "riskgate.volumes" -}}
- name: config
  configMap:
    name: {{ include "riskgate.fullname" . }}
- name: run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: admin
  secret:
    secretName: {{ .Values.admin.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .Values.admin.secretKey }}
        path: token
{{- if eq .Values.store.kind "redis" }}
# The lists of feeds; the store has all else.
- name: state
  emptyDir:
    sizeLimit: 1Gi
{{- include "riskgate.storeVolumes" . }}
{{- else if .Values.store.sqlite.existingClaim }}
- name: state
  persistentVolumeClaim:
    claimName: {{ .Values.store.sqlite.existingClaim }}
{{- end }}
{{- with .Values.keys }}
{{- if .secretName }}
- name: keys
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items:
      - key: {{ .secretKey }}
        path: keys.toml
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
{{- range $index, $name := .Values.tls.secretNames }}
- name: tls-{{ $index }}
  secret:
    secretName: {{ $name }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "riskgate.container" -}}
name: riskgate
image: {{ include "riskgate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run]
workingDir: /var/lib/riskgate
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
env:
  {{- include "riskgate.env" . | nindent 2 }}
{{- include "riskgate.envFrom" . }}
ports:
  - name: http
    containerPort: 8080
  {{- if .Values.tls.enabled }}
  - name: https
    containerPort: 8443
  {{- end }}
  - name: admin
    containerPort: 9090
# The probes need no token.
startupProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "riskgate.volumeMounts" . | nindent 2 }}
{{- end -}}

{{/* The pod template of the Deployment and of the StatefulSet. */}}
{{- define "riskgate.podTemplate" -}}
{{- include "riskgate.checkValues" . -}}
metadata:
  labels:
    {{- include "riskgate.selectorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: riskgate
    # riskgate reads all other settings by itself.
    checksum/settings-that-need-a-restart: {{ include "riskgate.restartHash" . }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "riskgate.serviceAccountName" . }}
  automountServiceAccountToken: false
  # The variables of Services could be taken for variables of riskgate.
  enableServiceLinks: false
  # Longer than drain.delay and drain.grace together, so that the last reports reach the store.
  terminationGracePeriodSeconds: {{ add .Values.drain.delaySeconds .Values.drain.graceSeconds 10 }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{- include "riskgate.container" . | nindent 6 }}
  volumes:
    {{- include "riskgate.volumes" . | nindent 4 }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- toYaml . | nindent 6 }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "riskgate.selectorLabels" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- include "riskgate.scheduling" . | nindent 2 }}
{{- end -}}

{{/* Where the pods of the gateway and of the Job may run. */}}
{{- define "riskgate.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
