{{- define "outrigger.podSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- if include "outrigger.openshift" . -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "outrigger.spread" -}}
{{- range .Values.topologySpreadConstraints }}
{{- $selector := dict "matchLabels" (include "outrigger.selectorLabels" $ | fromYaml) }}
- {{ merge (dict) . (dict "labelSelector" $selector) | toYaml | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* The containers of the engines. */}}
{{- define "outrigger.engines" -}}
{{- if .Values.engine.enabled }}
{{ include "outrigger.engine" . }}
{{- end }}
{{- if .Values.oipEngine.enabled }}
{{ include "outrigger.oipEngine" . }}
{{- end }}
{{- end -}}

{{- define "outrigger.pod" -}}
metadata:
  annotations:
    # A changed configuration makes new pods, unless Outrigger reloads what has changed.
    checksum/config: {{ include "outrigger.restarts" . | sha256sum }}
    kubectl.kubernetes.io/default-container: outrigger
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "outrigger.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    {{- with .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "outrigger.serviceAccountName" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
  # Variables invented for Services look like settings.
  enableServiceLinks: false
  {{- with .Values.shareProcessNamespace }}
  shareProcessNamespace: {{ . }}
  {{- end }}
  # Time to drain, and some for the engine to end.
  terminationGracePeriodSeconds: {{ add (int .Values.drain.graceSeconds) 10 }}
  securityContext:
    {{- include "outrigger.podSecurityContext" . | nindent 4 }}
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
  {{- $engines := or .Values.engine.enabled .Values.oipEngine.enabled }}
  {{- $sidecar := and $engines (include "outrigger.nativeSidecar" .) }}
  {{- $plain := and $engines (not $sidecar) }}
  {{- $helpers := .Values.registry.helpers.image }}
  {{- if or $sidecar $helpers .Values.onnx.enabled .Values.extraInitContainers }}
  initContainers:
    {{- if $helpers }}
    {{- include "outrigger.helpers" . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $sidecar }}
    {{- include "outrigger.engines" . | trim | nindent 4 }}
    {{- end }}
    {{- if .Values.onnx.enabled }}
    {{- include "outrigger.onnx" . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- include "outrigger.control" . | nindent 4 }}
    {{- if $plain }}
    {{- include "outrigger.engines" . | trim | nindent 4 }}
    {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "outrigger.volumes" . | nindent 4 }}
  {{- with include "outrigger.spread" . | trim }}
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
