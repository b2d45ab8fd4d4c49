{{- /* Address blocks: those excluded from the internet, those of the API server, and forbidden ones. */ -}}

{{- define "sandlot.notPublic" -}}
["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"]
{{- end -}}

{{- /* The addresses of the cluster's own API server, if helm can look them up; a list as JSON. */ -}}
{{- define "sandlot.apiServers" -}}
{{- $found := list -}}
{{- $slice := lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" | default dict -}}
{{- if eq (get $slice "addressType") "IPv4" -}}
{{- range (get $slice "endpoints") -}}
{{- range .addresses -}}
{{- $found = append $found (printf "%s/32" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Takes a list: the value's name, a block. Fails if the block contains the clouds' metadata address, 169.254.169.254. */ -}}
{{- define "sandlot.checkCIDR" -}}
{{- $cidr := index . 1 -}}
{{- if contains ":" $cidr -}}
{{- $bits := splitList "/" $cidr | last | int -}}
{{- if or (gt $bits 128) (lt $bits 8) (regexMatch "^(?i:fd00:ec2|fe[89ab])" $cidr) (and (lt $bits 32) (regexMatch "^(?i:fd)" $cidr)) -}}
{{- fail (printf "%s: %s is not an IPv6 block, or so wide that it may contain a metadata address" (index . 0) $cidr) -}}
{{- end -}}
{{- else -}}
{{- $address := splitList "/" $cidr | first -}}
{{- $bits := splitList "/" $cidr | last | int -}}
{{- $bytes := splitList "." $address -}}
{{- range $bytes -}}
{{- if gt (int .) 255 -}}
{{- fail (printf "%s: %s is not an IPv4 block" (index $ 0) $cidr) -}}
{{- end -}}
{{- end -}}
{{- $value := 0 -}}
{{- range $bytes -}}{{- $value = add (mul $value 256) (int .) -}}{{- end -}}
{{- /* The block contains 169.254.169.254 (2852039166) if both, divided by the size of the block, are equal. */ -}}
{{- $size := 1 -}}
{{- range until (int (sub 32 $bits)) -}}{{- $size = mul $size 2 -}}{{- end -}}
{{- if eq (div $value $size) (div 2852039166 $size) -}}
{{- fail (printf "%s: %s contains the metadata address 169.254.169.254; use networkPolicy.egress.internet for the whole internet" (index . 0) $cidr) -}}
{{- end -}}
{{- end -}}
{{- end -}}
