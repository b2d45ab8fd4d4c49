{{- /* What caches of registries and node agents share. */ -}}

{{- define "sandlot.checkRegistryCache" -}}
{{- $cache := .Values.registryCache -}}
{{- if not .Values.nodeAgent.enabled -}}
{{- fail "registryCache.enabled needs nodeAgent.enabled, since the node agent has containerd use the caches" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled $cache.upstreams (not $cache.nodeCIDRs) -}}
{{- fail "registryCache.nodeCIDRs is empty: list the address blocks of the nodes, which alone may use the caches" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $cache.upstreams -}}
{{- if or (hasKey $seen .name) (hasKey $seen (printf "host %s" .host)) -}}
{{- fail (printf "registryCache.upstreams: the name %s or the host %s is there twice; each registry has one cache" .name .host) -}}
{{- end -}}
{{- $_ := set (set $seen .name true) (printf "host %s" .host) true -}}
{{- end -}}
{{- range $cache.nodeCIDRs -}}
{{- if hasSuffix "/0" . -}}
{{- fail (printf "registryCache.nodeCIDRs: %s is every address; list those of the nodes" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Takes a list: the root, an upstream's name. */ -}}
{{- define "sandlot.cacheName" -}}
{{- printf "%s-cache-%s" (include "sandlot.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{- /* The caches as the node agent's settings have them, as JSON. */ -}}
{{- define "sandlot.mirrors" -}}
{{- $mirrors := list -}}
{{- range .Values.registryCache.upstreams -}}
{{- $name := include "sandlot.cacheName" (list $ .name) -}}
{{- /* Absolute: a lookup would try the pod's search domains first. */ -}}
{{- $service := printf "%s.%s.svc.%s." $name $.Release.Namespace ($.Values.clusterDomain | trimSuffix ".") -}}
{{- $mirrors = append $mirrors (dict "host" .host "upstream" .url "cache" $service "port" 5000) -}}
{{- end -}}
{{- toJson $mirrors -}}
{{- end -}}

{{- /* A rule of egress to the cluster's DNS. */ -}}
{{- define "sandlot.egressToDNS" -}}
- ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
  to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .namespace | quote }}}}
      podSelector:
        matchLabels:
          {{- toYaml .podLabels | nindent 10 }}
    {{- range .cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
{{- end -}}
