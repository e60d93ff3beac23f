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
{{- end -}}
