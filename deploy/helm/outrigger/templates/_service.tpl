{{- define "outrigger.servicePorts" -}}
{{- $ports := list
  (list "grpc" .Values.service.grpcPort "kubernetes.io/h2c")
  (list "http" .Values.service.httpPort "http")
  (list "health" .Values.service.healthPort "http")
-}}
{{- if .Values.xgboostServing.enabled }}
{{- $ports = append $ports (list "xgboost-serving" .Values.service.xgboostServingPort "kubernetes.io/h2c") }}
{{- end }}
{{- range $ports }}
{{- $name := first . }}
{{- $listener := replace "-" "_" $name }}
{{- $protocol := ternary "https" (last .) (eq (include "outrigger.speaksTLS" (list $ $listener)) "true") }}
- {name: {{ $name }}, port: {{ index . 1 | int }}, targetPort: {{ $name }}, appProtocol: {{ $protocol }}}
{{- end }}
{{- end -}}
