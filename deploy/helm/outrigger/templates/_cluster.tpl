{{/* Switches that depend on the cluster; each is "true" or empty. */}}

{{- define "outrigger.kubeVersion" -}}
{{- default .Capabilities.KubeVersion.Version .Values.kubeVersionOverride | trimPrefix "v" -}}
{{- end -}}

{{- define "outrigger.nativeSidecar" -}}
{{- $switch := .Values.engine.nativeSidecar | toString -}}
{{- if eq $switch "auto" -}}
{{- if semverCompare ">=1.29-0" (include "outrigger.kubeVersion" .) }}true{{ end -}}
{{- else if eq $switch "true" }}true{{ end -}}
{{- end -}}

{{- define "outrigger.openshift" -}}
{{- $switch := .Values.openshift | toString -}}
{{- if eq $switch "auto" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- else if eq $switch "true" }}true{{ end -}}
{{- end -}}

{{- define "outrigger.kind" -}}
{{- ternary "StatefulSet" "Deployment" (eq .Values.store.type "persistent") -}}
{{- end -}}
