{{/* Pod spec of a pool's workers; call with (list $ pool). The autoscaler adds hostname and subdomain of each. */}}
{{- define "slurm-platform.workerSpec" -}}
{{- $root := index . 0 -}}
{{- $pool := index . 1 -}}
{{- $gpus := get $pool "gpus" | default 0 | int -}}
{{- include "slurm-platform.podSpec" (list $root "workers") }}
# slurmd's end is the worker's end: one that restarted in place would be a node that lost its jobs without anybody knowing.
restartPolicy: Never
subdomain: slurm-workers
terminationGracePeriodSeconds: {{ $pool.drainSeconds }}
{{- with get $pool "runtimeClassName" }}
runtimeClassName: {{ . }}
{{- end }}
{{- include "slurm-platform.placement" $pool }}
{{- with get $pool "hosts" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - key: kubernetes.io/hostname
              operator: In
              values:
                {{- toYaml . | nindent 16 }}
{{- end }}
# No fsGroup: some storage drivers would walk /home and give it to that group.
securityContext:
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: slurmd
    image: {{ get $pool "image" | default (include "slurm-platform.image" (list $root "slurm-worker")) }}
    imagePullPolicy: {{ $root.Values.images.pullPolicy }}
    env:
      - {name: TZ, value: {{ $root.Values.timeZone | quote }}}
      - {name: SLURM_SACK_KEY, value: /etc/slurm-keys/auth/slurm.key}
      - {name: SLURM_SACK_JWKS, value: /etc/slurm-keys/auth/slurm.jwks}
      - {name: BERTH_CONTROLLER, value: {{ printf "%s:6817" (include "slurm-platform.host" (list $root "slurm-controller")) | quote }}}
      {{- if $gpus }}
      # What NVIDIA's container toolkit puts into the pod: the driver's libraries and its tools, MPS's among them.
      - {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}
      # start-slurmd looks for so many, and names them as gres.conf does.
      - {name: BERTH_CARDS, value: {{ $gpus | toString | quote }}}
      {{- end }}
      {{- with get (get $pool "sharing" | default dict) "mps" }}
      # slurmd is started with a supervisor of the card's MPS daemon beside it.
      - {name: BERTH_MPS_USERS, value: {{ get . "users" | default "one" | quote }}}
      {{- with get . "cardMemory" }}
      - {name: BERTH_CARD_MEMORY, value: {{ . | quote }}}
      {{- end }}
      {{- end }}
      {{- with get $pool "ulimits" }}
      # Set by start-slurmd before slurmd, whose jobs inherit them.
      - {name: BERTH_ULIMITS, value: {{ $list := list }}{{ range $name, $value := . }}{{ $list = append $list (printf "%s=%s" $name $value) }}{{ end }}{{ join " " $list | quote }}}
      {{- end }}
      {{- range $name, $value := get $pool "env" | default dict }}
      - {name: {{ $name | quote }}, value: {{ $value | quote }}}
      {{- end }}
    ports:
      - {name: slurmd, containerPort: 6818}
    # Root, because slurmd starts each job as its user; of root's powers only these. Jobs have none of them.
    securityContext:
      runAsUser: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
        add:
          - CHOWN # a job's spool, output files and new home become the user's
          - SETUID # become the job's user
          - SETGID # and take the user's groups
          - KILL # signal the job's processes
          - FOWNER # sbcast gives a copied file its mode once it is the user's
    lifecycle:
      preStop:
        exec:
          command: [/usr/libexec/berth/leave]
    readinessProbe:
      exec:
        command: [/usr/libexec/berth/node-registered]
      periodSeconds: 10
      timeoutSeconds: 5
    resources:
      {{- include "slurm-platform.workerResources" $pool | nindent 6 }}
    volumeMounts:
      - {name: auth-key, mountPath: /etc/slurm-keys/auth, readOnly: true}
      - {name: users, mountPath: /var/lib/extrausers, readOnly: true}
      - {name: modules, mountPath: /etc/berth/modules, readOnly: true}
      - {name: spool, mountPath: /var/spool/slurmd}
      - {name: run, mountPath: /run}
      - {name: shm, mountPath: /dev/shm}
      - {name: tmp, mountPath: /tmp}
      - {name: var-tmp, mountPath: /var/tmp}
      - {name: home, mountPath: /home}
      - {name: shared, mountPath: /shared}
volumes:
  # Root's alone: jobs run in this very container as other users and must not read it.
  - name: auth-key
    secret:
      secretName: {{ $root.Values.secrets.authKey | quote }}
      defaultMode: 0400
  {{- include "slurm-platform.usersVolume" $root | nindent 2 }}
  {{- include "slurm-platform.modulesVolume" $root | nindent 2 }}
  - name: spool
    emptyDir: {}
  - name: run
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
  # In memory, and counted to the pod's: a container's own 64 MiB is too small for MPS, NCCL and data loaders.
  - name: shm
    emptyDir: {medium: Memory}
  - name: tmp
    emptyDir: {}
  - name: var-tmp
    emptyDir: {}
  {{- include "slurm-platform.homeVolumes" $root | nindent 2 }}
{{- end }}

{{/* Resources of a worker; call with the pool. GPUs are whole ones: Slurm alone divides them. */}}
{{- define "slurm-platform.workerResources" -}}
{{- $size := dict "cpu" (.cpus | toString) "memory" .memory -}}
{{- $requests := get . "requests" | default $size | deepCopy -}}
{{- $limits := dict -}}
{{- if or (get . "limits") (not (get . "requests")) -}}
{{- $limits = get . "limits" | default $size | deepCopy -}}
{{- end -}}
{{- with get . "gpus" | default 0 | int -}}
{{- $_ := set $requests (get $ "gpuResource" | default "nvidia.com/gpu") (toString .) -}}
{{- $_ := set $limits (get $ "gpuResource" | default "nvidia.com/gpu") (toString .) -}}
{{- end -}}
requests:
  {{- toYaml $requests | nindent 2 }}
{{- with $limits }}
limits:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
