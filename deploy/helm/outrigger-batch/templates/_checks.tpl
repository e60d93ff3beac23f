{{/* Checks that a schema cannot express: values that are absent, or contradict each other. */}}
{{- define "batch.check" -}}
{{- $values := .Values -}}
{{- if not $values.image.repository -}}
{{- fail "image.repository is required: the repository of Outrigger's image" -}}
{{- end -}}
{{- with $values.job -}}
{{- if not (or .input .retry) -}}
{{- fail "job.input is required: the files with the rows" -}}
{{- end -}}
{{- $package := kindIs "map" .model | ternary (get (kindIs "map" .model | ternary .model dict) "package") "" -}}
{{- if not (or .hosts $package) -}}
{{- fail "job.hosts is required: the hosts that have the model" -}}
{{- end -}}
{{- if not (or .model .retry (eq (toString .protocol) "openai")) -}}
{{- fail "job.model is required: the model's name on the hosts" -}}
{{- end -}}
{{- if not .output -}}
{{- fail "job.output is required: the place of the output" -}}
{{- end -}}
{{- end -}}
{{- $output := toString $values.job.output -}}
{{- if not (contains "://" $output) -}}
{{- $mounts := list -}}
{{- if $values.output.existingClaim -}}
{{- $mounts = append $mounts (include "batch.paths.output" .) -}}
{{- end -}}
{{- range $values.extraVolumeMounts -}}
{{- $mounts = append $mounts .mountPath -}}
{{- end -}}
{{- $found := false -}}
{{- range $mounts -}}
{{- if or (eq $output .) (hasPrefix (printf "%s/" (trimSuffix "/" .)) $output) -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "job.output: no volume is mounted at %s; set output.existingClaim and a path below /output, or name an object store" $output) -}}
{{- end -}}
{{- end -}}
{{- if and $values.monitoring.enabled (regexMatch "^(127[.]|[[]::1[]])" (toString $values.job.listen)) -}}
{{- fail (printf "job.listen: no scraper reaches %s in another pod; set 0.0.0.0:9910, or leave it out" $values.job.listen) -}}
{{- end -}}
{{- if and $values.ca.existingConfigMap $values.ca.existingSecret -}}
{{- fail "ca: a ConfigMap or a Secret, not both" -}}
{{- end -}}
{{- end -}}
