{{- define "outrigger.servicePorts" -}}
- {name: grpc, port: {{ int .Values.service.grpcPort }}, targetPort: grpc, appProtocol: kubernetes.io/h2c}
- {name: http, port: {{ int .Values.service.httpPort }}, targetPort: http, appProtocol: http}
- {name: health, port: {{ int .Values.service.healthPort }}, targetPort: health, appProtocol: http}
{{- end -}}
