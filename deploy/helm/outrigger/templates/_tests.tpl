{{- define "outrigger.testLabels" -}}
app.kubernetes.io/name: {{ include "outrigger.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* A pod that runs one command: its name, its arguments and further values. */}}
{{- define "outrigger.testPod" -}}
{{- $top := .top -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "outrigger.fullname" $top }}-test-{{ .name }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "outrigger.testLabels" $top | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- include "outrigger.podSecurityContext" $top | nindent 4 }}
  {{- with $top.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $top.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $top.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "outrigger.image" (list $top.Values.image $top.Chart.AppVersion) }}
      imagePullPolicy: {{ $top.Values.image.pullPolicy }}
      command: [outrigger]
      args:
        {{- toYaml .args | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 64Mi}
      securityContext:
        {{- toYaml $top.Values.securityContext | nindent 8 }}
{{- end -}}
