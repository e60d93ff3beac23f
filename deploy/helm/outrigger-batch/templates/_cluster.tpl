{{/* Switches that depend on the cluster; each is "true" or empty. */}}

{{- define "batch.openshift" -}}
{{- $switch := .Values.openshift | toString -}}
{{- if eq $switch "auto" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- else if eq $switch "true" }}true{{ end -}}
{{- end -}}

{{/* Kubernetes 1.31 has success policies. */}}
{{- define "batch.successPolicy" -}}
{{- $version := default .Capabilities.KubeVersion.Version .Values.kubeVersionOverride | trimPrefix "v" -}}
{{- if semverCompare ">=1.31-0" $version }}true{{ end -}}
{{- end -}}
