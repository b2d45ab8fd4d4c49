{{- /* Which pools the chart creates. */ -}}

{{- /* Not empty if the default pool is on, and neither `pools` nor somebody else has one. */ -}}
{{- define "sandlot.wantsDefaultPool" -}}
{{- /* `helm upgrade --reuse-values` from a chart without `defaultPool` passes none. */ -}}
{{- if and (not .Values.pools) (.Values.defaultPool | default dict).enabled -}}
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
{{- if or $ours (not $there) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /*
The registry of the default pool's image if the controller would refuse it, else empty: the rule of
contract/src/sandlot_contract/images.py, except that it refuses public addresses, too.
*/ -}}
{{- define "sandlot.refusedRegistry" -}}
{{- $image := include "sandlot.image" (list . "python") -}}
{{- $first := splitList "/" $image | first -}}
{{- $registry := "docker.io" -}}
{{- if and (contains "/" $image) (or (regexMatch "[.:A-Z]" $first) (eq $first "localhost")) -}}
{{- $registry = lower $first -}}
{{- end -}}
{{- $accepted := false -}}
{{- range .Values.gateway.config.registries -}}
{{- $entry := lower . -}}
{{- if or (eq $entry $registry) (and (hasPrefix "*." $entry) (hasSuffix (trimPrefix "*" $entry) $registry)) -}}
{{- $accepted = true -}}
{{- end -}}
{{- end -}}
{{- if not .Values.gateway.config.registries -}}
{{- $host := splitList ":" $registry | first -}}
{{- $address := regexMatch "(^|\\.)([0-9]+|0x[0-9a-f]*)$" $host -}}
{{- $internal := regexMatch "\\.(localhost|localdomain|local|internal|svc|lan|intranet|corp|home|home\\.arpa)$" $host -}}
{{- $accepted = and (contains "." $host) (not $address) (not $internal) -}}
{{- end -}}
{{- if not $accepted }}{{ $registry }}{{ end -}}
{{- end -}}

{{- /* The pools to create, by name, as JSON. */ -}}
{{- define "sandlot.pools" -}}
{{- $pools := .Values.pools | default dict -}}
{{- if and (include "sandlot.wantsDefaultPool" .) (not (include "sandlot.refusedRegistry" .)) -}}
{{- $template := dict "image" (include "sandlot.image" (list . "python")) -}}
{{- $size := .Values.defaultPool.size | default 2 -}}
{{- $pools = dict "default" (dict "size" (int $size) "template" $template) -}}
{{- end -}}
{{- toJson $pools -}}
{{- end -}}
