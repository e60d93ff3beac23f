{{/* An upgrade is compared with what runs. Where a chart is rendered without a cluster, nothing is found. */}}

{{/* The release's workload in the cluster, as JSON; {} if there is none. That of another kind or name is
looked for only if there is none of the present ones, because that takes further rights. */}}
{{- define "outrigger.live" -}}
{{- $workload := dict -}}
{{- if .Release.IsUpgrade -}}
{{- $kind := include "outrigger.kind" . -}}
{{- $name := include "outrigger.fullname" . -}}
{{- $other := ternary "Deployment" "StatefulSet" (eq $kind "StatefulSet") -}}
{{- $found := list (lookup "apps/v1" $kind .Release.Namespace $name) -}}
{{- if not (first $found) -}}
{{- $found = list (lookup "apps/v1" $other .Release.Namespace $name) -}}
{{- end -}}
{{- if not (first $found) -}}
{{- range list $kind $other -}}
{{- $found = concat $found (default list (lookup "apps/v1" . $.Release.Namespace "").items) -}}
{{- end -}}
{{- end -}}
{{- $chart := printf "^%s-[0-9]" (regexQuoteMeta .Chart.Name) -}}
{{- range $found -}}
{{- $labels := dig "metadata" "labels" dict . -}}
{{- $isReleases := eq (get $labels "app.kubernetes.io/instance") $.Release.Name -}}
{{- if and $isReleases (regexMatch $chart (get $labels "helm.sh/chart")) -}}
{{- $workload = . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $workload -}}
{{- end -}}

{{/* How the number of a workload's pods is owned, as JSON: whether Helm applies the workload on the server, whether the
number is in what Helm has applied, and whether others have set it. */}}
{{- define "outrigger.owners" -}}
{{- $found := dict "applied" false "helm" false "others" false -}}
{{- range dig "metadata" "managedFields" list . -}}
{{- $spec := dig "fieldsV1" "f:spec" dict . -}}
{{- if and (eq .operation "Apply") (hasKey $spec "f:template") -}}
{{- $_ := set $found "applied" true -}}
{{- $_ := set $found "helm" (hasKey $spec "f:replicas") -}}
{{- else if and (eq (default "" .subresource) "scale") (hasKey $spec "f:replicas") -}}
{{- $_ := set $found "others" true -}}
{{- end -}}
{{- end -}}
{{- if and $found.applied (not $found.helm) }}{{ $_ := set $found "others" true }}{{ end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The number of pods; empty if the manifest leaves it out. With autoscaling that number runs already. Kubernetes sets
it to 1 if it leaves the manifest, unless others own it and Helm applies on the server, as Helm 3 never does. */}}
{{- define "outrigger.replicas" -}}
{{- if not .Values.autoscaling.enabled -}}
{{- .Values.replicaCount -}}
{{- else -}}
{{- with include "outrigger.live" . | fromJson -}}
{{- $owners := include "outrigger.owners" . | fromJson -}}
{{- $keeps := dig "annotations" "outrigger.dev/replicas" "" .metadata -}}
{{- if ne (include "outrigger.place" .) (include "outrigger.newPlace" $) -}}
{{- $keeps = "kept" -}}
{{- else if and $owners.applied (not (hasPrefix "v3." $.Capabilities.HelmVersion.Version)) -}}
{{- $keeps = ternary "left" "kept" $owners.others -}}
{{- else if not $keeps -}}
{{- $scaler := lookup "autoscaling/v2" "HorizontalPodAutoscaler" $.Release.Namespace .metadata.name -}}
{{- $keeps = ternary "kept" "left" (empty $scaler) -}}
{{- end -}}
{{- if eq $keeps "kept" }}{{ int .spec.replicas }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A workload's kind and name, as kubectl writes them: in the cluster, and by the values. */}}
{{- define "outrigger.place" -}}
{{- printf "%s/%s" (lower .kind) .metadata.name -}}
{{- end -}}
{{- define "outrigger.newPlace" -}}
{{- printf "%s/%s" (include "outrigger.kind" . | lower) (include "outrigger.fullname" .) -}}
{{- end -}}

{{/* Refuses, before anything changes, an upgrade that Kubernetes would refuse halfway, or that deletes pods before the new
ones are ready. */}}
{{- define "outrigger.checkUpgrade" -}}
{{- $live := include "outrigger.live" . | fromJson -}}
{{- if $live -}}
{{- $old := include "outrigger.place" $live -}}
{{- $new := include "outrigger.newPlace" . -}}
{{- $recreated := and (eq .Values.store.type "existingClaim") (ne (dig "spec" "strategy" "type" "" $live) "Recreate") -}}
{{- if and (or $recreated (ne $old $new)) (ne (dig "replace" "" (default dict .Values.upgrade)) $old) -}}
{{- $changed := ternary "store.type" "nameOverride, fullnameOverride" (eq $live.metadata.name (include "outrigger.fullname" .)) -}}
{{- fail (printf "%s: the pods of %s would be deleted before those of %s are ready; install a second release and move the callers, or accept the outage with upgrade.replace=%s" $changed $old $new $old) -}}
{{- end -}}
{{- if eq $old $new -}}
{{- include "outrigger.checkFixed" (list . $live) -}}
{{- if not .Values.autoscaling.enabled -}}
{{- include "outrigger.checkScale" (list .Values.replicaCount $live) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses changes of fields that Kubernetes does not let change. */}}
{{- define "outrigger.checkFixed" -}}
{{- $top := index . 0 -}}
{{- $live := index . 1 -}}
{{- $labels := include "outrigger.selectorLabels" $top | fromYaml -}}
{{- if ne (toJson $live.spec.selector.matchLabels) (toJson $labels) -}}
{{- fail (printf "nameOverride: the labels by which %s finds its pods cannot change from %s to %s; set fullnameOverride too, or install a second release" $live.metadata.name (toJson $live.spec.selector.matchLabels) (toJson $labels)) -}}
{{- end -}}
{{- with first (default list $live.spec.volumeClaimTemplates) -}}
{{- $claim := include "outrigger.claim" $top | fromYaml -}}
{{- $size := .spec.resources.requests.storage -}}
{{- if ne (include "outrigger.quantity" $size) (include "outrigger.quantity" $top.Values.store.size) -}}
{{- fail (printf "store.size: the volumes of %s have %s, and a StatefulSet's cannot become %s by an upgrade; docs/operations.md#volumes-of-another-size has the steps" $live.metadata.name $size $top.Values.store.size) -}}
{{- end -}}
{{- $spec := .spec -}}
{{- range list "storageClassName" "accessModes" -}}
{{- if ne (get $spec . | toJson) (get $claim . | toJson) -}}
{{- fail (printf "store.%s: the volumes of %s have %s, and a StatefulSet's cannot become %s by an upgrade; install a second release and move the callers" . $live.metadata.name (get $spec . | toJson) (get $claim . | toJson)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses to end pods that an autoscaler or `kubectl scale` has added, and a number that the server would refuse to Helm. */}}
{{- define "outrigger.checkScale" -}}
{{- $wanted := index . 0 | int -}}
{{- $live := index . 1 -}}
{{- $owners := include "outrigger.owners" $live | fromJson -}}
{{- $scaled := or $owners.others (dig "annotations" "outrigger.dev/replicas" "" $live.metadata) -}}
{{- $running := int $live.spec.replicas -}}
{{- if and $scaled (or (gt $running $wanted) (and $owners.applied (ne $running $wanted))) -}}
{{- fail (printf "replicaCount: an autoscaler or kubectl scale has set %d pods, which an upgrade does not change to %d; set replicaCount to %d, or first kubectl scale --replicas=%d %s" $running $wanted $running $wanted (include "outrigger.place" $live)) -}}
{{- end -}}
{{- end -}}
