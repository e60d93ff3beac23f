{{- define "outrigger.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Limited in length, so that there is room for "-headless" and a StatefulSet's pod number. */}}
{{- define "outrigger.fullname" -}}
{{- $name := include "outrigger.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "outrigger.selectorLabels" -}}
app.kubernetes.io/name: {{ include "outrigger.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "outrigger.labels" -}}
{{ include "outrigger.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version) }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "outrigger.metadata" -}}
name: {{ include "outrigger.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "outrigger.labels" . | nindent 2 }}
{{- end -}}

{{- define "outrigger.serviceAccountName" -}}
{{- $made := ternary (include "outrigger.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{/* An image's reference, from its values and a default tag. */}}
{{- define "outrigger.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}
