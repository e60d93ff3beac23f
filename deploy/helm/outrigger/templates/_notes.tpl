{{/* Whether strangers lack the right that is named. */}}
{{- define "outrigger.asksForToken" -}}
{{- $top := index . 0 -}}
{{- $auth := default dict $top.Values.config.auth -}}
{{- $asked := or $top.Values.auth.existingSecret $auth.callers (hasKey $auth "anonymous") -}}
{{- if and $asked (not (has (index . 1) (default list $auth.anonymous))) }}true{{ end -}}
{{- end -}}

{{- define "outrigger.showsCertificate" -}}
{{- if and (include "outrigger.speaksTLS" (list . "http")) (eq (dig "http" "server" (default dict .Values.config.tls)) "mutual") }}true{{ end -}}
{{- end -}}

{{/* The values that would pin the images which go by a tag. */}}
{{- define "outrigger.notPinned" -}}
{{- $ours := ternary "image.digest" "" (empty .Values.image.digest) -}}
{{- $engines := ternary "engine.image.digest" "" (empty .Values.engine.image.digest) -}}
{{- compact (list $ours $engines) | join " and " -}}
{{- end -}}

{{/* What a caller has to bring, in words. */}}
{{- define "outrigger.notesShown" -}}
{{- if include "outrigger.showsCertificate" . -}}
, with a caller's certificate (caller.crt, caller.key)
{{- end -}}
{{- if and (include "outrigger.asksForToken" (list . "predict")) (not .Values.tests.tokenSecret) -}}
, with the TOKEN of a caller who may predict
{{- end -}}
{{- end -}}

{{/* The commands that get what can be had. */}}
{{- define "outrigger.notesFetched" -}}
{{- $secret := printf "kubectl -n %s get secret" .Release.Namespace -}}
{{- if include "outrigger.speaksTLS" (list . "http") }}
  {{ $secret }} {{ .Values.tls.existingSecret }} -o 'jsonpath={.data.ca\.crt}' | base64 -d > ca.crt
{{- end }}
{{- if include "outrigger.asksForToken" (list . "predict") }}
{{- with .Values.tests.tokenSecret }}
  TOKEN=$({{ $secret }} {{ . }} -o 'jsonpath={.data.token}' | base64 -d)
{{- end }}
{{- end }}
{{- end -}}

{{/* How curl gets to the HTTP port, which is forwarded: options and the start of the address. */}}
{{- define "outrigger.notesAccess" -}}
{{- if include "outrigger.asksForToken" (list . "predict") }} -H "authorization: Bearer $TOKEN"{{ end -}}
{{- if include "outrigger.showsCertificate" . }} --cert caller.crt --key caller.key{{ end -}}
{{- if include "outrigger.speaksTLS" (list . "http") -}}
{{- $host := printf "%s.%s.svc:9080" (include "outrigger.fullname" .) .Release.Namespace }} --cacert ca.crt --resolve {{ $host }}:127.0.0.1 https://{{ $host }}
{{- else }} localhost:9080{{ end -}}
{{- end -}}
