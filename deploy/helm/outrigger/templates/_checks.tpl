{{/* Checks that a schema cannot express: values that contradict each other. */}}
{{- define "outrigger.check" -}}
{{- $values := .Values -}}
{{- if not $values.image.repository -}}
{{- fail "image.repository is required: the repository of Outrigger's image" -}}
{{- end -}}
{{- if not (or $values.config.images.repository $values.config.models) -}}
{{- fail "config.images.repository: without it and without config.models, no model exists" -}}
{{- end -}}
{{- if eq $values.store.type "existingClaim" -}}
{{- if not $values.store.existingClaim -}}
{{- fail "store.existingClaim is required: the name of the claim" -}}
{{- end -}}
{{- if or (gt (int $values.replicaCount) 1) $values.autoscaling.enabled -}}
{{- fail "store.type existingClaim: a model store has one owner; set replicaCount to 1, or use store.type persistent" -}}
{{- end -}}
{{- end -}}
{{- with $values.engine.batching -}}
{{- if and .allowedSizes (ne (int (last .allowedSizes)) (int .maxBatchSize)) -}}
{{- fail "engine.batching.allowedSizes: the last must be maxBatchSize, or no model loads" -}}
{{- end -}}
{{- $users := dig "max_users" 64 (default dict $values.config.server) | int -}}
{{- if and .enabled (lt (int .maxBatchSize) $users) -}}
{{- fail (printf "engine.batching.maxBatchSize: must be at least config.server.max_users, %d, or a larger BatchPredict fails" $users) -}}
{{- end -}}
{{- end -}}
{{- with $values.oipEngine -}}
{{- if and .enabled (not .image.repository) -}}
{{- fail "oipEngine.image.repository is required: the repository of the server's image" -}}
{{- end -}}
{{- if and .enabled (has (int .port) (list 8001 8500 9000 9080 9901 9902)) -}}
{{- fail (printf "oipEngine.port: %d is a port of the control plane" (int .port)) -}}
{{- end -}}
{{- end -}}
{{- if and $values.onnx.enabled (not (include "outrigger.nativeSidecar" .)) -}}
{{- fail "onnx.enabled: needs native sidecars, of Kubernetes 1.29: as a plain container it would end before the control plane does" -}}
{{- end -}}
{{- with $values.registry -}}
{{- if and .useImagePullSecret (not .existingSecret) (not $values.imagePullSecrets) -}}
{{- fail "registry.useImagePullSecret: there are no imagePullSecrets" -}}
{{- end -}}
{{- if and .caBundle.existingConfigMap .caBundle.existingSecret -}}
{{- fail "registry.caBundle: a ConfigMap or a Secret, not both" -}}
{{- end -}}
{{- if and .signatureKeys.existingConfigMap .signatureKeys.existingSecret -}}
{{- fail "registry.signatureKeys: a ConfigMap or a Secret, not both" -}}
{{- end -}}
{{- end -}}
{{- if eq (dig "health" "" (default dict $values.config.tls)) "mutual" -}}
{{- fail "config.tls.health: the kubelet, which probes the port, has no certificate; use optional" -}}
{{- end -}}
{{- if and $values.config.tls (not $values.tls.existingSecret) -}}
{{- fail "tls.existingSecret: config.tls needs a certificate" -}}
{{- end -}}
{{- with $values.autoscaling -}}
{{- if and .enabled (not .targetCPUUtilizationPercentage) (not .targetRequestsInFlight) -}}
{{- fail "autoscaling: by CPU, by requests in flight, or both" -}}
{{- end -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (.Files.Get "monitoring/alerts.yaml" | fromYaml).groups -}}
{{- range .rules -}}
{{- $alerts = append $alerts .alert -}}
{{- end -}}
{{- end -}}
{{- range $values.monitoring.rules.disabled -}}
{{- if not (has . $alerts) -}}
{{- fail (printf "monitoring.rules.disabled: there is no alert %s, only %s" . (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}
{{- if le (int $values.drain.graceSeconds) (int $values.drain.delaySeconds) -}}
{{- fail "drain.graceSeconds: it includes delaySeconds, and must be more" -}}
{{- end -}}
{{- include "outrigger.checkAccepted" . -}}
{{- range $name := list "config" "proxy" "extraEnv" "engine" "oipEngine" "onnx" -}}
{{- include "outrigger.checkSecrets" (list $name (index $values $name)) -}}
{{- end -}}
{{- end -}}

{{/* Kubernetes refuses these when Helm has changed other objects already. */}}
{{- define "outrigger.checkAccepted" -}}
{{- $values := .Values -}}
{{- $name := include "outrigger.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: %s is no name of a Service, which begins with a letter and has lower-case letters, digits and hyphens only" $name) -}}
{{- end -}}
{{- range $labels := list "commonLabels" "podLabels" -}}
{{- range $key := keys (include "outrigger.selectorLabels" $ | fromYaml) -}}
{{- if hasKey (default dict (index $values $labels)) $key -}}
{{- fail (printf "%s: the chart sets %s, by which pods are found" $labels $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $values.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas: %d is more than maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- $rolling := dig "rollingUpdate" dict (default dict $values.strategy) -}}
{{- $step := list (get $rolling "maxSurge" | toString) (get $rolling "maxUnavailable" | toString) -}}
{{- if and (regexMatch "^0+%?$" (first $step)) (regexMatch "^0+%?$" (last $step)) -}}
{{- fail "strategy.rollingUpdate: with maxSurge and maxUnavailable of 0 no pod can be replaced" -}}
{{- end -}}
{{- $taken := dict -}}
{{- range include "outrigger.servicePorts" . | fromYamlArray -}}
{{- $port := .port | toString -}}
{{- if hasKey $taken $port -}}
{{- fail (printf "service: the ports %s and %s are both %s" (get $taken $port) .name $port) -}}
{{- end -}}
{{- $_ := set $taken $port .name -}}
{{- end -}}
{{- include "outrigger.checkPod" . -}}
{{- include "outrigger.checkLimits" (list "resources" $values.resources) -}}
{{- range list "engine" "oipEngine" "onnx" -}}
{{- $container := index $values . -}}
{{- if $container.enabled -}}
{{- include "outrigger.checkLimits" (list (printf "%s.resources" .) $container.resources) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses resources whose limit is less than the request. */}}
{{- define "outrigger.checkLimits" -}}
{{- $value := index . 0 -}}
{{- $resources := default dict (index . 1) -}}
{{- range $resource, $request := default dict $resources.requests -}}
{{- $limit := get (default dict $resources.limits) $resource -}}
{{- $least := include "outrigger.quantity" $request -}}
{{- $most := include "outrigger.quantity" $limit -}}
{{- if and $least $most (gt (float64 $least) (float64 $most)) -}}
{{- fail (printf "%s.limits.%s: %v is less than the request, %v" $value $resource $limit $request) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses additions to the pod that collide with what it has, or mount what it has not. */}}
{{- define "outrigger.checkPod" -}}
{{- $pod := (include "outrigger.pod" . | fromYaml).spec -}}
{{- $containers := concat (default list $pod.initContainers) $pod.containers -}}
{{- include "outrigger.checkUnique" (list "the pod" "container" "name" $containers) -}}
{{- include "outrigger.checkUnique" (list "the pod" "volume" "name" $pod.volumes) -}}
{{- include "outrigger.checkUnique" (list "the pod" "pull secret" "name" $pod.imagePullSecrets) -}}
{{- $volumes := list "store" -}}
{{- range $pod.volumes }}{{ $volumes = append $volumes .name }}{{ end -}}
{{- range $container := $containers -}}
{{- $place := printf "the container %s" .name -}}
{{- include "outrigger.checkUnique" (list $place "variable" "name" .env) -}}
{{- include "outrigger.checkUnique" (list $place "mount" "mountPath" .volumeMounts) -}}
{{- range .volumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "%s mounts the volume %s, which the pod does not have" $place .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a list with two items of one key. */}}
{{- define "outrigger.checkUnique" -}}
{{- $key := index . 2 -}}
{{- $seen := list -}}
{{- range default list (index . 3) -}}
{{- if has (get . $key) $seen -}}
{{- fail (printf "%s has two of the %s %s; the chart or the values set it already" (index $ 0) (index $ 1) (get . $key)) -}}
{{- end -}}
{{- $seen = append $seen (get . $key) -}}
{{- end -}}
{{- end -}}
