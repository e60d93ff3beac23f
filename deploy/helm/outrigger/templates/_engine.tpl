{{- define "outrigger.engine" -}}
{{- $config := include "outrigger.paths.config" . -}}
{{- $calls := dig "max_in_flight" 128 .Values.config.engine | int -}}
- name: engine
  image: {{ include "outrigger.image" (list .Values.engine.image "") }}
  imagePullPolicy: {{ .Values.engine.image.pullPolicy }}
  {{- if include "outrigger.nativeSidecar" . }}
  restartPolicy: Always
  {{- end }}
  command:
    {{- toYaml .Values.engine.command | nindent 4 }}
  args:
    - --port=0
    - --grpc_socket_path={{ include "outrigger.paths.socket" . }}
    - --rest_api_port=0
    - --model_config_file={{ $config }}/models.config
    # Else the file would undo what was pushed.
    - --model_config_file_poll_wait_seconds=0
    - --file_system_poll_wait_seconds=1
    - --num_load_threads={{ int .Values.engine.loadThreads }}
    - --num_unload_threads=1
    # Outrigger tries again, as a new version.
    - --max_num_load_retries=0
    - --load_retry_interval_micros=0
    # More than Outrigger has in flight, or calls are refused.
    - --grpc_max_threads={{ add $calls 32 }}
    - --tensorflow_intra_op_parallelism={{ include "outrigger.threads" (list .Values.engine.resources .Values.engine.intraOpThreads) }}
    - --tensorflow_inter_op_parallelism={{ include "outrigger.threads" (list .Values.engine.resources .Values.engine.interOpThreads) }}
    {{- if .Values.engine.batching.enabled }}
    - --enable_batching=true
    - --batching_parameters_file={{ $config }}/batching.config
    {{- if .Values.engine.batching.perModel }}
    - --enable_per_model_batching_parameters=true
    {{- end }}
    {{- end }}
    {{- with .Values.engine.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    # Else oneDNN's own pool keeps the memory of unloaded weights.
    - name: TF_ONEDNN_USE_SYSTEM_ALLOCATOR
      value: "1"
    {{- with .Values.engine.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  startupProbe:
    exec:
      command: [test, -S, {{ include "outrigger.paths.socket" . }}]
    {{- toYaml .Values.engine.startupProbe | nindent 4 }}
  {{- if not (include "outrigger.nativeSidecar" .) }}
  lifecycle:
    preStop:
      exec:
        # Stay until the control plane has finished its requests and is gone.
        command:
          - /bin/bash
          - -c
          - "while (: </dev/tcp/127.0.0.1/9902) 2>/dev/null; do sleep 0.2; done"
  {{- end }}
  {{- with .Values.engine.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: {{ $config }}, readOnly: true}
    - {name: run, mountPath: /run/outrigger}
    - {name: store, mountPath: {{ include "outrigger.paths.store" . }}, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    {{- with .Values.engine.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
