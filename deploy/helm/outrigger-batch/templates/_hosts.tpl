{{/* The ports of job.hosts, as a list. */}}
{{- define "batch.hostPorts" -}}
{{- $hosts := default list .Values.job.hosts -}}
{{- if not (kindIs "slice" $hosts) -}}
{{- $hosts = list $hosts -}}
{{- end -}}
{{- range $hosts }}
{{- $endpoint := kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "endpoint") }}
{{- $place := regexReplaceAll "^[a-z]+://" $endpoint "" | splitList "/" | first }}
{{- $usual := ternary "443" "80" (hasPrefix "https://" $endpoint) }}
- {{ default $usual (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $place)) }}
{{- end }}
{{- end -}}
