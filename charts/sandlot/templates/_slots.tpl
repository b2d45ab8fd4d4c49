{{- /* What the values of slots and private images must not combine. */ -}}

{{- define "sandlot.checkSlots" -}}
{{- if and .Values.slots.enabled (not .Values.nodeAgent.enabled) -}}
{{- fail "slots.enabled needs nodeAgent.enabled, since the node agent prepares the images of claims" -}}
{{- end -}}
{{- if .Values.gateway.registryCredentialsSecret -}}
{{- if not .Values.slots.enabled -}}
{{- fail "gateway.registryCredentialsSecret needs slots.enabled: only the node agent pulls with a tenant's credentials" -}}
{{- end -}}
{{- if ne (.Values.sandboxes.pods.imagePullPolicy | default "") "Always" -}}
{{- fail "gateway.registryCredentialsSecret needs sandboxes.pods.imagePullPolicy=Always: otherwise a node starts any tenant's pod from a private image that it has pulled for one tenant" -}}
{{- end -}}
{{- end -}}
{{- end -}}
