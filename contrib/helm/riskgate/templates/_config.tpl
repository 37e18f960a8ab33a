{{/*
The settings that the chart sets, each with the value that it sets it from. They reach
riskgate as environment variables, which override the config file. So Helm refuses them in the
file, where they would have no effect.
*/}}
{{- define "riskgate.ownSettings" -}}
listen.http: bindAddress
listen.https: tls.enabled
listen.certificate: tls.secretNames
listen.admin: bindAddress
upstream.servers: upstream.servers
table.overrides: overrides
store.url: store.kind
store.url_file: store.redis.secretName
store.tls_ca: store.redis.caSecretName
store.wait_replicas: store.redis.waitReplicas
keys.file: keys.secretName
process.runtime_dir: its templates
drain.delay: drain.delaySeconds
drain.grace: drain.graceSeconds
admin.token: admin.secretName
admin.token_file: admin.secretName
admin.metrics_public: admin.metricsPublic
{{- end -}}

{{/*
The settings of the file that take effect without a restart: whole sections, or single settings of a
section. All other settings need a restart.
*/}}
{{- define "riskgate.reloadedSettings" -}}
sections: [check, table, dns, plans, rule, decide, top, webhook]
settings:
  listen: [certificate]
  log: [access, format, fields, level, process_format]
  upstream: [route]
  authz: [check, email, mode, block_score, block_reasons, unscreened, message]
  store: [on_failure]
  keys: [file, max_per_client, prefix]
  admin: [token]
{{- end -}}

{{/* A hash of the settings that need a restart. If it changes, Kubernetes replaces the pods. */}}
{{- define "riskgate.restartHash" -}}
{{- $config := .Values.config | fromToml -}}
{{- $reloaded := include "riskgate.reloadedSettings" . | fromYaml -}}
{{- range $section := $reloaded.sections -}}
{{- $_ := unset $config $section -}}
{{- end -}}
{{- range $section, $names := $reloaded.settings -}}
{{- if kindIs "map" (get $config $section) -}}
{{- range $names -}}
{{- $_ := unset (get $config $section) . -}}
{{- end -}}
{{- if not (get $config $section) -}}
{{- $_ := unset $config $section -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $config | toJson | sha256sum -}}
{{- end -}}

{{/* The config file: the text of the values, and the certificates of tls.secretNames. */}}
{{- define "riskgate.configFile" -}}
{{- .Values.config | trimSuffix "\n" }}
{{- if .Values.tls.enabled }}
{{- range .Values.tls.secretNames }}

[[listen.certificate]]
chain = "/run/secrets/riskgate/tls/{{ . }}/tls.crt"
key = "/run/secrets/riskgate/tls/{{ . }}/tls.key"
{{- end }}
{{- end }}
{{- end -}}

{{/* The section [store] of the config file, for the Job that prepares the store. */}}
{{- define "riskgate.storeConfig" -}}
{{- $store := get (.Values.config | fromToml) "store" -}}
{{- dict "store" (ternary $store dict (kindIs "map" $store)) | toToml | trim -}}
{{- end -}}
