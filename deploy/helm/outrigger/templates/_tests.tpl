{{- define "outrigger.testLabels" -}}
app.kubernetes.io/name: {{ include "outrigger.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The options of a command for the named port. */}}
{{- define "outrigger.testAccess" -}}
{{- $top := index . 0 -}}
{{- $port := index . 1 -}}
{{- if include "outrigger.speaksTLS" (list $top $port) }}
- --ca=/tls/ca.crt
- --server-name={{ include "outrigger.fullname" $top }}.{{ $top.Release.Namespace }}.svc
{{- if has (dig $port "server" (default dict $top.Values.config.tls)) (list "optional" "mutual") }}
- --cert=/tls/tls.crt
- --key=/tls/tls.key
{{- end }}
{{- end }}
{{- if $top.Values.tests.tokenSecret }}
- --token-file=/token/token
{{- end }}
{{- end -}}

{{/* The mounts of a test pod, by name: its request, the certificate, the token. */}}
{{- define "outrigger.testMounts" -}}
{{- $top := .top -}}
{{- if .request }}
- {name: request, mountPath: /request, configMap: {name: {{ include "outrigger.fullname" $top }}-test}}
{{- end }}
{{- with $top.Values.tls.existingSecret }}
- {name: tls, mountPath: /tls, secret: {secretName: {{ . }}}}
{{- end }}
{{- with $top.Values.tests.tokenSecret }}
- {name: token, mountPath: /token, secret: {secretName: {{ . }}}}
{{- end }}
{{- end -}}

{{/* A pod that runs one command: its name, the port it calls, its arguments, and whether it sends the request. */}}
{{- define "outrigger.testPod" -}}
{{- $top := .top -}}
{{- $mounts := include "outrigger.testMounts" . | fromYamlArray -}}
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
        {{- with include "outrigger.testAccess" (list $top .port) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 64Mi}
      securityContext:
        {{- toYaml $top.Values.securityContext | nindent 8 }}
      {{- if $mounts }}
      volumeMounts:
        {{- range $mounts }}
        - {name: {{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
        {{- end }}
  volumes:
    {{- range $mounts }}
    - {{ omit . "mountPath" | toJson }}
    {{- end }}
      {{- end }}
{{- end -}}
