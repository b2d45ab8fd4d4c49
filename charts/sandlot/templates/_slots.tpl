{{- /* What the values of slots, node agents and private images must not combine. */ -}}

{{- define "sandlot.checkSlots" -}}
{{- if and .Values.slots.enabled (not .Values.nodeAgent.enabled) -}}
{{- fail "slots.enabled needs nodeAgent.enabled, since the node agent prepares the images of claims" -}}
{{- end -}}
{{- if and .Values.nodeAgent.enabled .Values.nodeAgent.containerd.runtimeHandler -}}
{{- if not .Values.nodeAgent.containerd.snapshotter -}}
{{- fail "nodeAgent.containerd.runtimeHandler needs nodeAgent.containerd.snapshotter, the name of that handler's snapshotter" -}}
{{- end -}}
{{- if ne (.Values.sandboxes.pods.imagePullPolicy | default "") "Always" -}}
{{- fail "nodeAgent.containerd.runtimeHandler needs sandboxes.pods.imagePullPolicy=Always: otherwise the kubelet takes an image for present whose layers only that handler's snapshotter has" -}}
{{- end -}}
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
