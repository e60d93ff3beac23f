{{- define "outrigger.paths.config" -}}/etc/outrigger/config{{- end -}}
{{- define "outrigger.paths.registry" -}}/etc/outrigger/registry{{- end -}}
{{- define "outrigger.paths.helpers" -}}/opt/outrigger/helpers{{- end -}}
{{- define "outrigger.paths.ca" -}}/etc/outrigger/ca{{- end -}}
{{- define "outrigger.paths.tls" -}}/etc/outrigger/tls{{- end -}}
{{- define "outrigger.paths.clientCA" -}}/etc/outrigger/client-ca{{- end -}}
{{- define "outrigger.paths.tokens" -}}/etc/outrigger/tokens{{- end -}}
{{- define "outrigger.paths.token" -}}/run/outrigger-token{{- end -}}
{{- define "outrigger.paths.keys" -}}/etc/outrigger/keys{{- end -}}
{{- define "outrigger.paths.store" -}}/var/lib/outrigger{{- end -}}
{{- define "outrigger.paths.repository" -}}/var/lib/outrigger-repository{{- end -}}
{{- define "outrigger.paths.socket" -}}/run/outrigger/engine.sock{{- end -}}
{{- define "outrigger.paths.onnxSocket" -}}/run/outrigger/onnx.sock{{- end -}}

{{/* Whether engines listen on sockets in the pod. */}}
{{- define "outrigger.hasSockets" -}}
{{- if or .Values.engine.enabled .Values.onnx.enabled }}true{{ end -}}
{{- end -}}

{{/* The Secret with the registries' credentials, if there is one. */}}
{{- define "outrigger.registrySecret" -}}
{{- if .Values.registry.existingSecret -}}
{{- .Values.registry.existingSecret -}}
{{- else if .Values.registry.useImagePullSecret -}}
{{- with first .Values.imagePullSecrets }}{{ .name }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "outrigger.hasCaBundle" -}}
{{- with .Values.registry.caBundle }}{{ if or .existingConfigMap .existingSecret }}true{{ end }}{{ end -}}
{{- end -}}

{{/* Whether changes take the operator's token, which the control plane writes. */}}
{{- define "outrigger.hasOperatorToken" -}}
{{- $auth := default dict .Values.config.auth -}}
{{- $named := or .Values.auth.existingSecret $auth.callers -}}
{{- if not (or $named (has "change" (default list $auth.anonymous))) }}true{{ end -}}
{{- end -}}

{{/* Whether the named port uses TLS. */}}
{{- define "outrigger.speaksTLS" -}}
{{- $top := index . 0 -}}
{{- $transport := dig (index . 1) "server" (default dict $top.Values.config.tls) -}}
{{- if and $top.Values.tls.existingSecret (ne $transport "plain") }}true{{ end -}}
{{- end -}}

{{- define "outrigger.hasSignatureKeys" -}}
{{- with .Values.registry.signatureKeys }}{{ if or .existingConfigMap .existingSecret }}true{{ end }}{{ end -}}
{{- end -}}

{{/* A tenth of the volume stays free: a full emptyDir would evict the pod. */}}
{{- define "outrigger.storeSize" -}}
{{- $size := .Values.store.size -}}
{{- $number := regexFind "^[0-9.]+" $size | float64 -}}
{{- $mebibytes := index (dict "Mi" 1.0 "Gi" 1024.0 "Ti" 1048576.0) (regexFind "[MGT]i$" $size) -}}
{{- printf "%dMiB" (floor (mulf $number $mebibytes 0.9) | int64) -}}
{{- end -}}

{{/* Seven eighths of the control plane's memory limit, as without the setting; nothing without a limit. */}}
{{- define "outrigger.memory" -}}
{{- with dig "limits" "memory" "" .Values.resources -}}
{{- with include "outrigger.quantity" . -}}
{{- printf "%dMiB" (divf (mulf . 0.875) 1048576.0 | floor | int64) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes as a number; empty if it is not written as a number and a unit. */}}
{{- define "outrigger.quantity" -}}
{{- $text := toString . -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if and (regexMatch "^[0-9.]+[A-Za-z]*$" $text) (hasKey $units $unit) -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units $unit) -}}
{{- end -}}
{{- end -}}

{{/* outrigger.yaml: the configuration in the values, and the settings that the pod determines. */}}
{{- define "outrigger.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $listen := .Values.listenAddress -}}
{{- $_ := set $config "server" (merge (dict
  "grpc" (printf "%s:9000" $listen)
  "http" (printf "%s:9080" $listen)
  "health" (printf "%s:9902" $listen)
  "admin" "127.0.0.1:9901"
  "shutdown_delay" (printf "%ds" (int .Values.drain.delaySeconds))
  "shutdown_grace" (printf "%ds" (int .Values.drain.graceSeconds))
) (default dict $config.server)) -}}
{{- if .Values.xgboostServing.enabled -}}
{{- $_ := set $config.server "xgboost_serving" (printf "%s:8500" $listen) -}}
{{- end -}}
{{- if .Values.oip.enabled -}}
{{- $_ := set $config.server "oip" (printf "%s:8001" $listen) -}}
{{- end -}}
{{- with include "outrigger.memory" . -}}
{{- $_ := set $config "server" (merge $config.server (dict "memory" .)) -}}
{{- end -}}
{{- $threads := include "outrigger.threads" (list .Values.resources $config.server.threads) | int -}}
{{- $_ := set $config.server "threads" $threads -}}
{{- $_ := set $config "engine" (merge (dict
  "endpoint" (printf "unix:%s" (include "outrigger.paths.socket" .))
) (default dict $config.engine)) -}}
{{- with .Values.engine.batching -}}
{{- if .enabled -}}
{{- $_ := set $config "engine" (merge (dict "batching" true "max_batch_size" .maxBatchSize) $config.engine) -}}
{{- end -}}
{{- end -}}
{{- with .Values.oipEngine -}}
{{- if .enabled -}}
{{- $engines := default dict $config.engines -}}
{{- $own := dict "kind" "oip" "endpoint" (printf "127.0.0.1:%d" (int .port)) "repository" (include "outrigger.paths.repository" $) -}}
{{- $_ := set $config "engines" (merge (dict "oip" (merge $own (default dict $engines.oip))) $engines) -}}
{{- end -}}
{{- end -}}
{{- if .Values.onnx.enabled -}}
{{- $onnx := dict "kind" "onnx" "endpoint" (printf "unix:%s" (include "outrigger.paths.onnxSocket" .)) -}}
{{- $_ := set $config "engines" (merge (dict "onnx" (merge $onnx .Values.onnx.config)) (default dict $config.engines)) -}}
{{- end -}}
{{/* Beside other engines, the pod's own is called default, as without them. */}}
{{- if not .Values.engine.enabled -}}
{{- $_ := set $config "engines" (default (dict "trees" (dict "kind" "trees")) $config.engines) -}}
{{- $_ := unset $config "engine" -}}
{{- else if $config.engines -}}
{{- $_ := set $config.engines "default" (merge (dict "kind" "tfserving") $config.engine) -}}
{{- $_ := unset $config "engine" -}}
{{- else -}}
{{- $_ := unset $config "engines" -}}
{{- end -}}
{{- $_ := set $config "store" (merge (dict
  "path" (include "outrigger.paths.store" .)
) (default dict $config.store) (dict "max_size" (include "outrigger.storeSize" .))) -}}
{{- $tls := default dict $config.tls -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $tls "certificate" (printf "%s/tls.crt" (include "outrigger.paths.tls" .)) -}}
{{- $_ := set $tls "admin" (default "plain" $tls.admin) -}}
{{- $_ := set $tls "key" (printf "%s/tls.key" (include "outrigger.paths.tls" .)) -}}
{{- end -}}
{{- if .Values.tls.clientCA.existingSecret -}}
{{- $_ := set $tls "client_ca" (printf "%s/ca.crt" (include "outrigger.paths.clientCA" .)) -}}
{{- end -}}
{{- if .Values.auth.existingSecret -}}
{{- $_ := set $config "auth" (merge (dict
  "tokens" (include "outrigger.paths.tokens" .)
) (default dict $config.auth)) -}}
{{- end -}}
{{- $_ := set $config "tls" $tls -}}
{{- if not $config.images.repository -}}
{{- $_ := unset $config.images "repository" -}}
{{- end -}}
{{- if not $config.images.signatures -}}
{{- $_ := unset $config.images "signatures" -}}
{{- end -}}
{{- if not (dig "traces" "endpoint" "" $config) -}}
{{- $_ := unset $config.traces "endpoint" -}}
{{- end -}}
{{- if not $config.validation -}}
{{- $_ := unset $config "validation" -}}
{{- end -}}
{{- if include "outrigger.registrySecret" . -}}
{{- $_ := set $config.images "docker_config" (include "outrigger.paths.registry" .) -}}
{{- end -}}
{{- with .Values.registry.identity -}}
{{- $_ := set $config.images "identity" . -}}
{{- end -}}
{{- if include "outrigger.hasCaBundle" . -}}
{{- $_ := set $config.images "ca_file" (printf "%s/ca.crt" (include "outrigger.paths.ca" .)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port of a URL. */}}
{{- define "outrigger.port" -}}
{{- $url := urlParse . -}}
{{- $usual := ternary "443" "80" (eq $url.scheme "https") -}}
{{- default $usual (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host)) -}}
{{- end -}}

{{/* The threads of a container with these resources: the given number, or the CPU limit rounded up, or
without a limit the request rounded up, or 1: never the number of the node's cores. */}}
{{- define "outrigger.threads" -}}
{{- $resources := default dict (index . 0) -}}
{{- $given := index . 1 | int -}}
{{- $cpus := dig "requests" "cpu" "" $resources | toString -}}
{{- $cpus = dig "limits" "cpu" $cpus $resources | default $cpus | toString -}}
{{- $number := float64 (trimSuffix "m" $cpus) -}}
{{- if hasSuffix "m" $cpus }}{{ $number = divf $number 1000.0 }}{{ end -}}
{{- default (max 1 (ceil $number | int)) $given -}}
{{- end -}}

{{/* BatchingParameters, as protobuf's text. */}}
{{- define "outrigger.batching" -}}
{{- with .Values.engine.batching -}}
max_batch_size { value: {{ int .maxBatchSize }} }
batch_timeout_micros { value: {{ int .timeoutMicros }} }
max_enqueued_batches { value: {{ int .maxEnqueuedBatches }} }
{{- with default (include "outrigger.threads" (list $.Values.engine.resources $.Values.engine.interOpThreads) | int) (int .threads) }}
num_batch_threads { value: {{ . }} }
{{- end }}
{{- range .allowedSizes }}
allowed_batch_sizes: {{ int . }}
{{- end }}
pad_variable_length_inputs: {{ .padVariableLengthInputs }}
{{- end -}}
{{- end -}}

{{/* The keys that Outrigger reloads, as docs/configuration.md marks them. */}}
{{- define "outrigger.reloads" -}}
canary: [enabled, defaults, overrides]
images: [allowed]
limits: [callers, models, per_caller, per_model, unknown_names]
server: [max_treatments, max_users, max_in_flight, max_waiting, default_deadline]
store: [idle_ttl, retain]
{{- end -}}

{{/* The configuration whose changes need new pods: outrigger.yaml without the keys that reload,
     and the engine's files. */}}
{{- define "outrigger.restarts" -}}
{{- $config := omit (include "outrigger.config" . | fromYaml) "models" -}}
{{- range $section, $keys := include "outrigger.reloads" . | fromYaml -}}
{{- range $keys -}}
{{- $_ := unset (default dict (index $config $section)) . -}}
{{- end -}}
{{- end -}}
{{- toYaml $config }}
{{ if .Values.engine.enabled }}{{ include "outrigger.engineFiles" . }}{{ end }}
{{- end -}}

{{- define "outrigger.files" -}}
outrigger.yaml: |
  {{- include "outrigger.config" . | nindent 2 }}
{{ if .Values.engine.enabled }}{{ include "outrigger.engineFiles" . }}{{ end }}
{{- end -}}

{{- define "outrigger.engineFiles" -}}
# What the engine starts with: no models, which is not the same as an empty file.
models.config: |
  model_config_list {}
{{- if .Values.engine.batching.enabled }}
batching.config: |
  {{- include "outrigger.batching" . | nindent 2 }}
{{- end }}
{{- end -}}
