{{/* The paths in the containers. */}}
{{- define "batch.paths.config" -}}/etc/outrigger/job{{- end -}}
{{- define "batch.paths.ca" -}}/etc/outrigger/ca{{- end -}}
{{- define "batch.paths.tokens" -}}/etc/outrigger/tokens{{- end -}}
{{- define "batch.paths.input" -}}/input{{- end -}}
{{- define "batch.paths.output" -}}/output{{- end -}}

{{- define "batch.hasCa" -}}
{{- if or .Values.ca.existingConfigMap .Values.ca.existingSecret }}true{{ end -}}
{{- end -}}

{{/* The address of each worker's status page and metrics; empty: it has none. */}}
{{- define "batch.listen" -}}
{{- if .Values.job.listen -}}
{{- .Values.job.listen -}}
{{- else if or .Values.monitoring.enabled .Values.monitoring.rules.enabled -}}
0.0.0.0:9910
{{- end -}}
{{- end -}}

{{/* The job file. Keys without a value are left out. */}}
{{- define "batch.file" -}}
{{- $job := dict -}}
{{- range $key, $value := .Values.job -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $job $key $value -}}
{{- end -}}
{{- end -}}
{{- if include "batch.hasCa" . -}}
{{- $_ := set $job "ca" (printf "%s/ca.crt" (include "batch.paths.ca" .)) -}}
{{- end -}}
{{- with include "batch.listen" . -}}
{{- $_ := set $job "listen" . -}}
{{- end -}}
{{- toYaml $job -}}
{{- end -}}

{{/* What of a Job's specification cannot change, without its pods. */}}
{{- define "batch.fixed" -}}
completionMode: Indexed
completions: {{ int .Values.workers }}
backoffLimitPerIndex: {{ int .Values.backoffLimitPerIndex }}
podFailurePolicy:
  rules:
    # The settings are at fault (64), or the job was stopped by `batch cancel` or `max_errors` (65):
    # another try would end in the same way.
    - action: FailJob
      onExitCodes: {containerName: batch, operator: In, values: [64, 65]}
    # The cluster has removed the pod: a drain, a preemption, a node that is gone.
    - action: Ignore
      onPodConditions:
        - {type: DisruptionTarget, status: "True"}
{{- if include "batch.successPolicy" . }}
successPolicy:
  rules:
    # A worker succeeds when the output is complete, whoever has done the chunks.
    - succeededCount: 1
{{- end }}
{{- end -}}
