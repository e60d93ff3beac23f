{{/* Whether anonymous callers lack the named right. */}}
{{- define "outrigger.asksForToken" -}}
{{- $top := index . 0 -}}
{{- $auth := default dict $top.Values.config.auth -}}
{{- $asked := or $top.Values.auth.existingSecret $auth.callers (hasKey $auth "anonymous") -}}
{{- if and $asked (not (has (index . 1) (default list $auth.anonymous))) }}true{{ end -}}
{{- end -}}

{{- define "outrigger.showsCertificate" -}}
{{- if and (include "outrigger.speaksTLS" (list . "http")) (eq (dig "http" "server" (default dict .Values.config.tls)) "mutual") }}true{{ end -}}
{{- end -}}

{{/* The values that would pin images that use a tag. */}}
{{- define "outrigger.notPinned" -}}
{{- $ours := ternary "image.digest" "" (empty .Values.image.digest) -}}
{{- $byTag := and .Values.engine.enabled (empty .Values.engine.image.digest) -}}
{{- $engines := ternary "engine.image.digest" "" $byTag -}}
{{- with .Values.oipEngine -}}
{{- $second := ternary "oipEngine.image.digest" "" (and .enabled (empty .image.digest)) -}}
{{- compact (list $ours $engines $second) | join " and " -}}
{{- end -}}
{{- end -}}

{{/* A description of the credentials that callers need. */}}
{{- define "outrigger.notesShown" -}}
{{- if include "outrigger.showsCertificate" . -}}
, with a caller's certificate (caller.crt, caller.key)
{{- end -}}
{{- if and (include "outrigger.asksForToken" (list . "predict")) (not .Values.tests.tokenSecret) -}}
, with the TOKEN of a caller who may predict
{{- end -}}
{{- end -}}

{{/* The commands that fetch the certificate and the token. */}}
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

{{/* curl's options and the start of the address for the forwarded HTTP port. */}}
{{- define "outrigger.notesAccess" -}}
{{- if include "outrigger.asksForToken" (list . "predict") }} -H "authorization: Bearer $TOKEN"{{ end -}}
{{- if include "outrigger.showsCertificate" . }} --cert caller.crt --key caller.key{{ end -}}
{{- if include "outrigger.speaksTLS" (list . "http") -}}
{{- $host := printf "%s.%s.svc:9080" (include "outrigger.fullname" .) .Release.Namespace }} --cacert ca.crt --resolve {{ $host }}:127.0.0.1 https://{{ $host }}
{{- else }} localhost:9080{{ end -}}
{{- end -}}
