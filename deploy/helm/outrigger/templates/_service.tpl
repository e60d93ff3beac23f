{{- define "outrigger.servicePorts" -}}
{{- $ports := list
  (list "grpc" .Values.service.grpcPort "kubernetes.io/h2c")
  (list "http" .Values.service.httpPort "http")
  (list "health" .Values.service.healthPort "http")
-}}
{{- if .Values.oip.enabled }}
{{- $ports = append $ports (list "oip" .Values.service.oipPort "kubernetes.io/h2c") }}
{{- end }}
{{- range $ports }}
{{- $name := first . }}
{{- $protocol := ternary "https" (last .) (eq (include "outrigger.speaksTLS" (list $ $name)) "true") }}
- {name: {{ $name }}, port: {{ index . 1 | int }}, targetPort: {{ $name }}, appProtocol: {{ $protocol }}}
{{- end }}
{{- end -}}
