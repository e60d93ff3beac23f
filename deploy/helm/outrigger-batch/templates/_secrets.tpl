{{/* Refuses credentials in values that become part of objects which are no Secrets. */}}
{{- define "batch.checkSecrets" -}}
{{- $path := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "map" $value -}}
{{- if and $value.value (regexMatch "(?i)(passw(or)?d|secret|secret_access_key|api_?key|token|otlp(_traces)?_headers)$" (toString $value.name)) -}}
{{- fail (printf "%s: a credential would stand in the pod; use valueFrom, or put it into a Secret that extraEnvFrom names" $path) -}}
{{- end -}}
{{- range $key, $inner := $value -}}
{{- $names := "(?i)authorization|cookie|credential|passw|secret|token|(api|access|functions?|subscription)[-_]?key$|^(x-)?auth$" -}}
{{- if and (hasSuffix ".headers" $path) (or (regexMatch $names $key) (regexMatch "(?i)^(basic|bearer) " (toString $inner))) -}}
{{- fail (printf "%s.%s: a credential would stand in a ConfigMap; put a token into the Secret of tokens.existingSecret, and name its file in token_file, with token_header for headers other than authorization" $path $key) -}}
{{- end -}}
{{- include "batch.checkSecrets" (list (printf "%s.%s" $path $key) $inner) -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- range $at, $inner := $value -}}
{{- $label := kindIs "map" $inner | ternary (get (kindIs "map" $inner | ternary $inner dict) "name") "" | default $at -}}
{{- include "batch.checkSecrets" (list (printf "%s[%v]" $path $label) $inner) -}}
{{- end -}}
{{- else if regexMatch "://[^/@ ]*:[^/@ ]*@" (toString $value) -}}
{{- fail (printf "%s: the password of the URL would stand in an object that is no Secret; put a token into the Secret of tokens.existingSecret, or the variable, as HTTPS_PROXY, into that of credentials.existingSecret" $path) -}}
{{- end -}}
{{- end -}}
