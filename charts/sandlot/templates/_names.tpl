{{- /* The names and labels that the templates share. */ -}}

{{- define "sandlot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sandlot.sandboxNamespace" -}}
{{- .Values.sandboxes.namespace | default (printf "%s-sandboxes" .Release.Name) -}}
{{- end -}}

{{- /* The namespace of the Secrets that creates name. */ -}}
{{- define "sandlot.secretsNamespace" -}}
{{- .Values.gateway.secretRefs.namespace | default (include "sandlot.sandboxNamespace" .) -}}
{{- end -}}

{{- /* Takes a list: the root, the component. */ -}}
{{- define "sandlot.selector" -}}
app.kubernetes.io/name: sandlot
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "sandlot.labels" -}}
{{- $root := index . 0 -}}
{{ include "sandlot.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- range $key, $value := $root.Values.commonLabels }}
{{- if regexMatch "^(app\\.kubernetes\\.io|helm\\.sh)/" $key }}
{{- fail (printf "commonLabels: %s is one of the chart's selector labels; remove it" $key) }}
{{- end }}
{{ $key }}: {{ quote $value }}
{{- end }}
{{- end -}}

{{- /* Takes a list: the root, `gateway`, `controller`, `sidecar`, `nodeAgent` or `python`. */ -}}
{{- define "sandlot.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $name := get $image (index . 1) | default (kebabcase (index . 1)) -}}
{{- $digest := get ($image.digests | default dict) (index . 1) -}}
{{- if and $digest (not $image.tag) -}}
{{- $name = printf "%s@%s" $name $digest -}}
{{- else -}}
{{- $name = printf "%s:%s" $name (default (index . 0).Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- if $image.registry }}{{ printf "%s/%s" (trimSuffix "/" $image.registry) $name }}{{ else }}{{ $name }}{{ end -}}
{{- end -}}

{{- define "sandlot.masterSecret" -}}
{{- .Values.auth.existingMasterSecret | default (printf "%s-master" (include "sandlot.fullname" .)) -}}
{{- end -}}

{{- define "sandlot.apiKeySecret" -}}
{{- .Values.auth.existingApiKeySecret | default (printf "%s-api-key" (include "sandlot.fullname" .)) -}}
{{- end -}}

{{- define "sandlot.nodeAgentSecret" -}}
{{- .Values.nodeAgent.existingTokenSecret | default (printf "%s-node-agent" (include "sandlot.fullname" .)) -}}
{{- end -}}

{{- define "sandlot.sidecarTlsSecret" -}}
{{- .Values.sidecarTls.existingSecret | default (printf "%s-sidecar-tls" (include "sandlot.fullname" .)) -}}
{{- end -}}

{{- define "sandlot.gatewayURL" -}}
{{- printf "http://%s-gateway.%s.svc.%s:%s" (include "sandlot.fullname" .) .Release.Namespace .Values.clusterDomain (toJson .Values.gateway.service.port) -}}
{{- end -}}
