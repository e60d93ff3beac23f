{{- define "batch.podSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- if include "batch.openshift" . -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "batch.spread" -}}
{{- range .Values.topologySpreadConstraints }}
{{- $selector := dict "matchLabels" (include "batch.selectorLabels" $ | fromYaml) }}
- {{ merge (dict) . (dict "labelSelector" $selector) | toYaml | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* The pods, with the configuration of this name. */}}
{{- define "batch.pod" -}}
{{- $config := index . 1 -}}
{{- with index . 0 -}}
metadata:
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    {{- include "batch.selectorLabels" . | nindent 4 }}
    {{- with .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  # The Job's controller judges each end of the process.
  restartPolicy: Never
  serviceAccountName: {{ include "batch.serviceAccountName" . }}
  automountServiceAccountToken: false
  # Variables invented for Services look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int .Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "batch.podSecurityContext" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: batch
      image: {{ include "batch.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [outrigger]
      args:
        - batch
        - run
        - {{ include "batch.paths.config" . }}/job.yaml
        # The Job's controller sets the variable in each pod.
        - --worker=$(JOB_COMPLETION_INDEX)/{{ int .Values.workers }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with include "batch.listen" . }}
      ports:
        - {name: metrics, containerPort: {{ regexFind "[0-9]+$" . }}}
      {{- end }}
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if or .Values.credentials.existingSecret .Values.extraEnvFrom }}
      envFrom:
        {{- with .Values.credentials.existingSecret }}
        - secretRef: {name: {{ . }}}
        {{- end }}
        {{- with .Values.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: {{ include "batch.paths.config" . }}, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if .Values.input.existingClaim }}
        - {name: input, mountPath: {{ include "batch.paths.input" . }}, readOnly: true}
        {{- end }}
        {{- if .Values.output.existingClaim }}
        - {name: output, mountPath: {{ include "batch.paths.output" . }}}
        {{- end }}
        {{- if include "batch.hasCa" . }}
        - {name: ca, mountPath: {{ include "batch.paths.ca" . }}, readOnly: true}
        {{- end }}
        {{- if .Values.tokens.existingSecret }}
        - {name: tokens, mountPath: {{ include "batch.paths.tokens" . }}, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "batch.volumes" (list . $config) | nindent 4 }}
  {{- with include "batch.spread" . | trim }}
  topologySpreadConstraints:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "batch.volumes" -}}
{{- $config := index . 1 -}}
{{- with index . 0 -}}
- name: config
  configMap:
    name: {{ $config }}
- name: tmp
  emptyDir: {}
{{- with .Values.input.existingClaim }}
- name: input
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- with .Values.output.existingClaim }}
- name: output
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- if .Values.ca.existingConfigMap }}
- name: ca
  configMap:
    name: {{ .Values.ca.existingConfigMap }}
    items:
      - {key: {{ .Values.ca.key }}, path: ca.crt}
{{- else if .Values.ca.existingSecret }}
- name: ca
  secret:
    secretName: {{ .Values.ca.existingSecret }}
    items:
      - {key: {{ .Values.ca.key }}, path: ca.crt}
{{- end }}
{{- with .Values.tokens.existingSecret }}
- name: tokens
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}
