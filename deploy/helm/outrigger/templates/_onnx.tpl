{{- define "outrigger.onnx" -}}
- name: onnx
  image: {{ include "outrigger.image" (list .Values.image .Chart.AppVersion) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  command: [outrigger]
  args:
    - onnx
    - --socket={{ include "outrigger.paths.onnxSocket" . }}
    - --threads={{ include "outrigger.threads" (list .Values.onnx.resources .Values.onnx.threads) }}
  {{- with .Values.onnx.extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.onnx.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: run, mountPath: /run/outrigger}
    - {name: store, mountPath: {{ include "outrigger.paths.store" . }}, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end -}}
