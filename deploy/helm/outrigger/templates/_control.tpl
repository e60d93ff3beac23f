{{- define "outrigger.probe" -}}
{{- $get := dict "path" (index . 1) "port" "health" -}}
{{- if include "outrigger.speaksTLS" (list (index . 0) "health") -}}
{{- $_ := set $get "scheme" "HTTPS" -}}
{{- end -}}
{{- toYaml (merge (dict "httpGet" $get) (index . 2)) -}}
{{- end -}}

{{- define "outrigger.control" -}}
- name: outrigger
  image: {{ include "outrigger.image" (list .Values.image .Chart.AppVersion) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [outrigger]
  args:
    - serve
    - --config={{ include "outrigger.paths.config" . }}/outrigger.yaml
  {{- $proxy := .Values.proxy }}
  {{- $operator := include "outrigger.hasOperatorToken" . }}
  {{- $helpers := .Values.registry.helpers.image }}
  {{- if or $operator $helpers $proxy.https $proxy.http $proxy.noProxy .Values.extraEnv }}
  env:
    {{- if $helpers }}
    # That of the image, and the credential helpers.
    - name: PATH
      value: /usr/local/bin:{{ include "outrigger.paths.helpers" . }}
    {{- end }}
    {{- if $operator }}
    # A variable, because the commands that are run in this container find the token by it.
    - name: OUTRIGGER_AUTH_TOKEN_FILE
      value: {{ include "outrigger.paths.token" . }}/token
    {{- end }}
    {{- with $proxy.https }}
    - name: HTTPS_PROXY
      value: {{ quote . }}
    {{- end }}
    {{- with $proxy.http }}
    - name: HTTP_PROXY
      value: {{ quote . }}
    {{- end }}
    {{- with $proxy.noProxy }}
    - name: NO_PROXY
      value: {{ quote . }}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: grpc, containerPort: 9000}
    - {name: http, containerPort: 9080}
    - {name: health, containerPort: 9902}
    {{- if .Values.xgboostServing.enabled }}
    - {name: xgboost-serving, containerPort: 8500}
    {{- end }}
    {{- if .Values.oip.enabled }}
    - {name: oip, containerPort: 8001}
    {{- end }}
  startupProbe:
    {{- include "outrigger.probe" (list . "/healthz" .Values.probes.startup) | nindent 4 }}
  readinessProbe:
    {{- include "outrigger.probe" (list . "/readyz" .Values.probes.readiness) | nindent 4 }}
  livenessProbe:
    {{- include "outrigger.probe" (list . "/healthz" .Values.probes.liveness) | nindent 4 }}
  {{- with .Values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: {{ include "outrigger.paths.config" . }}, readOnly: true}
    {{- if include "outrigger.hasSockets" . }}
    - {name: run, mountPath: /run/outrigger}
    {{- end }}
    - {name: store, mountPath: {{ include "outrigger.paths.store" . }}}
    {{- if .Values.oipEngine.enabled }}
    - {name: repository, mountPath: {{ include "outrigger.paths.repository" . }}}
    {{- end }}
    {{- if $operator }}
    - {name: operator-token, mountPath: {{ include "outrigger.paths.token" . }}}
    {{- end }}
    {{- if include "outrigger.registrySecret" . }}
    - {name: registry, mountPath: {{ include "outrigger.paths.registry" . }}, readOnly: true}
    {{- end }}
    {{- if $helpers }}
    - {name: helpers, mountPath: {{ include "outrigger.paths.helpers" . }}, readOnly: true}
    {{- end }}
    {{- if include "outrigger.hasCaBundle" . }}
    - {name: ca, mountPath: {{ include "outrigger.paths.ca" . }}, readOnly: true}
    {{- end }}
    {{- if .Values.tls.existingSecret }}
    - {name: tls, mountPath: {{ include "outrigger.paths.tls" . }}, readOnly: true}
    {{- end }}
    {{- if .Values.tls.clientCA.existingSecret }}
    - {name: client-ca, mountPath: {{ include "outrigger.paths.clientCA" . }}, readOnly: true}
    {{- end }}
    {{- if .Values.auth.existingSecret }}
    - {name: tokens, mountPath: {{ include "outrigger.paths.tokens" . }}, readOnly: true}
    {{- end }}
    {{- if include "outrigger.hasSignatureKeys" . }}
    - {name: keys, mountPath: {{ include "outrigger.paths.keys" . }}, readOnly: true}
    {{- end }}
    {{- if .Values.baseline.reference }}
    - {name: baseline, mountPath: /baseline, readOnly: true}
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The init container that copies the credential helpers. */}}
{{- define "outrigger.helpers" -}}
{{- with .Values.registry.helpers -}}
- name: credential-helpers
  image: {{ .image }}
  imagePullPolicy: {{ .pullPolicy }}
  command:
    {{- toYaml .command | nindent 4 }}
  {{- with $.Values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: helpers, mountPath: /helpers}
{{- end -}}
{{- end -}}
