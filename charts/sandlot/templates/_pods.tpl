{{- /* Shared by the pods of gateway and controller, which satisfy the Pod Security level `restricted`. */ -}}

{{- define "sandlot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "sandlot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Takes a list: the root, the component. Node selector, tolerations and affinity of its pods. */ -}}
{{- define "sandlot.placement" -}}
{{- $root := index . 0 -}}
{{- $own := get $root.Values (index . 1) -}}
{{- if $root.Values.priorityClasses.create }}
priorityClassName: {{ include "sandlot.fullname" $root }}-system
{{- end }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq $own.antiAffinity "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "sandlot.selector" . | nindent 12 }}
{{- else if eq $own.antiAffinity "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "sandlot.selector" . | nindent 14 }}
{{- end }}
{{- end -}}

{{- /* A mapping of settings as SANDLOT_… environment variables; null: the program's default. */ -}}
{{- define "sandlot.settings" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- name: SANDLOT_{{ snakecase $name | upper }}
  value: {{ if kindIs "string" $value }}{{ quote $value }}{{ else }}{{ toJson $value | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}
