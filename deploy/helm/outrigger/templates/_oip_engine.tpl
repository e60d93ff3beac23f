{{/* The second engine: a server of the Open Inference Protocol, which only the control plane calls. */}}
{{- define "outrigger.oipEngine" -}}
{{- with .Values.oipEngine -}}
- name: oip-engine
  image: {{ include "outrigger.image" (list .image "") }}
  imagePullPolicy: {{ .image.pullPolicy }}
  {{- if include "outrigger.nativeSidecar" $ }}
  restartPolicy: Always
  {{- end }}
  command:
    {{- toYaml .command | nindent 4 }}
  args:
    {{- toYaml .args | nindent 4 }}
  {{- with .extraEnv }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  startupProbe:
    exec:
      # Its port is on loopback, where the kubelet does not reach it.
      command: [/bin/bash, -c, ": </dev/tcp/127.0.0.1/{{ int .port }}"]
    {{- toYaml .startupProbe | nindent 4 }}
  {{- if not (include "outrigger.nativeSidecar" $) }}
  lifecycle:
    preStop:
      exec:
        # Stay until the control plane has finished its requests and is gone.
        command:
          - /bin/bash
          - -c
          - "while (: </dev/tcp/127.0.0.1/9902) 2>/dev/null; do sleep 0.2; done"
  {{- end }}
  {{- with .resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: repository, mountPath: {{ include "outrigger.paths.repository" $ }}, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    {{- with .extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}
