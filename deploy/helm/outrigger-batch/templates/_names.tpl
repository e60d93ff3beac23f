{{- define "batch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Limited in length: a Job's name has a hash after it, and a pod's its number and five characters. */}}
{{- define "batch.fullname" -}}
{{- $name := include "batch.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of the Job and its configuration. It ends with a hash of what cannot change in a Job, so that an upgrade which
changes that makes another Job. */}}
{{- define "batch.job" -}}
{{- $content := list (include "batch.file" .) (include "batch.fixed" .) (include "batch.pod" (list . "")) -}}
{{- printf "%s-%s" (include "batch.fullname" .) (join "\n" $content | sha256sum | trunc 8) -}}
{{- end -}}

{{- define "batch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "batch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "batch.labels" -}}
{{ include "batch.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version) }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object, from its name. */}}
{{- define "batch.metadata" -}}
{{- $top := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $top.Release.Namespace }}
labels:
  {{- include "batch.labels" $top | nindent 2 }}
{{- end -}}

{{- define "batch.serviceAccountName" -}}
{{- $made := ternary (include "batch.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $made .Values.serviceAccount.name -}}
{{- end -}}

{{- define "batch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
