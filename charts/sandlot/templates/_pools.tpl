{{- /* Which pools the chart creates. */ -}}

{{- /* The pools to create, by name, as JSON. An installation whose pools come from elsewhere gets no default one. */ -}}
{{- define "sandlot.pools" -}}
{{- $pools := .Values.pools | default dict -}}
{{- /* `helm upgrade --reuse-values` from a chart without `defaultPool` passes none. */ -}}
{{- $default := .Values.defaultPool | default dict -}}
{{- if and (not $pools) $default.enabled -}}
{{- $there := list -}}
{{- if .Capabilities.APIVersions.Has "sandlot.dev/v1alpha1/SandboxPool" -}}
{{- $there = (lookup "sandlot.dev/v1alpha1" "SandboxPool" (include "sandlot.sandboxNamespace" .) "").items | default list -}}
{{- end -}}
{{- $ours := false -}}
{{- range $there -}}
{{- if eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" .) $.Release.Name -}}
{{- $ours = true -}}
{{- end -}}
{{- end -}}
{{- if or $ours (not $there) -}}
{{- $template := dict "image" (include "sandlot.image" (list . "python")) -}}
{{- $pools = dict "default" (dict "size" (int ($default.size | default 2)) "template" $template) -}}
{{- end -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}
