{{- define "outrigger.servicePorts" -}}
{{- $ports := list
  (list "grpc" .Values.service.grpcPort "kubernetes.io/h2c")
  (list "http" .Values.service.httpPort "http")
  (list "health" .Values.service.healthPort "http")
-}}
{{- range $ports }}
{{- $name := first . }}
{{- $protocol := ternary "https" (last .) (eq (include "outrigger.speaksTLS" (list $ $name)) "true") }}
- {name: {{ $name }}, port: {{ index . 1 | int }}, targetPort: {{ $name }}, appProtocol: {{ $protocol }}}
{{- end }}
{{- end -}}
