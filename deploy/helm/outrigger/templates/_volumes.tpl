{{/* The request of a volume to its storage class. */}}
{{- define "outrigger.claim" -}}
accessModes:
  {{- toYaml .Values.store.accessModes | nindent 2 }}
{{- with .Values.store.storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.store.size }}
{{- end -}}

{{- define "outrigger.volumes" -}}
- name: config
  configMap:
    name: {{ include "outrigger.fullname" . }}
{{- if include "outrigger.hasSockets" . }}
# The engine's socket.
- name: run
  emptyDir: {}
{{- end }}
- name: tmp
  emptyDir: {}
{{- if .Values.oipEngine.enabled }}
# The models of the second engine.
- name: repository
  emptyDir:
    sizeLimit: {{ .Values.oipEngine.repositorySize }}
{{- end }}
{{- if include "outrigger.hasOperatorToken" . }}
# The token for changes; the engine does not mount it.
- name: operator-token
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- if eq .Values.store.type "emptyDir" }}
- name: store
  emptyDir:
    sizeLimit: {{ .Values.store.size }}
{{- else if eq .Values.store.type "ephemeral" }}
- name: store
  ephemeral:
    volumeClaimTemplate:
      spec:
        {{- include "outrigger.claim" . | nindent 8 }}
{{- else if eq .Values.store.type "existingClaim" }}
- name: store
  persistentVolumeClaim:
    claimName: {{ .Values.store.existingClaim }}
{{- end }}
{{- with include "outrigger.registrySecret" . }}
- name: registry
  secret:
    secretName: {{ . }}
    items:
      - {key: {{ $.Values.registry.existingSecretKey }}, path: config.json}
{{- end }}
{{- if .Values.registry.helpers.image }}
- name: helpers
  emptyDir: {}
{{- end }}
{{- with .Values.registry.caBundle.existingConfigMap }}
- name: ca
  configMap:
    name: {{ . }}
    items:
      - {key: {{ $.Values.registry.caBundle.key }}, path: ca.crt}
{{- end }}
{{- with .Values.registry.caBundle.existingSecret }}
- name: ca
  secret:
    secretName: {{ . }}
    items:
      - {key: {{ $.Values.registry.caBundle.key }}, path: ca.crt}
{{- end }}
{{- with .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- end }}
{{- with .Values.tls.clientCA.existingSecret }}
- name: client-ca
  secret:
    secretName: {{ . }}
    items:
      - {key: {{ $.Values.tls.clientCA.key }}, path: ca.crt}
{{- end }}
{{- with .Values.auth.existingSecret }}
- name: tokens
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.registry.signatureKeys.existingConfigMap }}
- name: keys
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.registry.signatureKeys.existingSecret }}
- name: keys
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.baseline }}
{{- if .reference }}
- name: baseline
  image:
    reference: {{ .reference }}
    pullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
