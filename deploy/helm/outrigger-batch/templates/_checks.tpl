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
{{- if gt (int (default 0 $values.maxFailedIndexes)) (int $values.workers) -}}
{{- fail (printf "maxFailedIndexes: %d is more than workers, %d" (int $values.maxFailedIndexes) (int $values.workers)) -}}
{{- end -}}
{{- range $name := list "job" "extraArgs" "extraEnv" -}}
{{- include "batch.checkSecrets" (list $name (index $values $name)) -}}
{{- end -}}
{{- $memory := toString (default "512MiB" $values.job.memory) -}}
{{- with dig "limits" "memory" "" (default dict $values.resources) -}}
{{- with include "batch.bytes" . -}}
{{- $held := include "batch.bytes" $memory | float64 -}}
{{- if lt (float64 .) (addf $held (maxf (mulf 0.5 $held) 134217728.0)) -}}
{{- fail (printf "resources.limits.memory: a worker needs job.memory, %s, and a half more, at least 128Mi, so it would be killed" $memory) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.ca.existingConfigMap $values.ca.existingSecret -}}
{{- fail "ca: a ConfigMap or a Secret, not both" -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes, or a size such as 512MiB, as a number; empty if it is neither. */}}
{{- define "batch.bytes" -}}
{{- $text := kindIs "string" . | ternary (toString .) (printf "%.0f" (float64 .)) | nospace | trimSuffix "B" -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if and (regexMatch "^[0-9.]+[A-Za-z]*$" $text) (hasKey $units $unit) -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units $unit) -}}
{{- end -}}
{{- end -}}
