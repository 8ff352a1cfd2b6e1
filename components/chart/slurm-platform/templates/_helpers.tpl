{{/* Labels of every object; call with (list $ "component"). */}}
{{- define "slurm-platform.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: slurm-platform
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: berth
{{- end }}

{{/* Labels that select a role's pods; call with the role. Never change: selectors are immutable. */}}
{{- define "slurm-platform.selector" -}}
app.kubernetes.io/part-of: berth
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Image reference by name; call with (list $ "slurm-worker"). A digest wins over the tag. */}}
{{- define "slurm-platform.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- $name := index . 1 -}}
{{- with index ($images.digests | default dict) $name -}}
{{ $images.registry }}/{{ $name }}@{{ . }}
{{- else -}}
{{ $images.registry }}/{{ $name }}:{{ required "images.tag is empty and images.digests has not all images" $images.tag }}
{{- end -}}
{{- end }}

{{/* Annotations of what exists during an uninstall alone; call with the hook's weight. */}}
{{- define "slurm-platform.removalHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Full DNS name of a Service in the control plane's namespace; call with (list $ "slurm-rest"). */}}
{{- define "slurm-platform.host" -}}
{{ index . 1 }}.{{ (index . 0).Values.namespaces.slurm }}.svc.{{ (index . 0).Values.domain }}
{{- end }}

{{/*
Fields of every pod's spec; call with (list $ "control") or (list $ "workers"), the kind of its PriorityClass. Slurm resolves node names by itself and blocks while it does: the search list gives every
worker a short name, and the options bound what the lookup of an absent pod costs.
*/}}
{{- define "slurm-platform.podSpec" -}}
{{- $values := (index . 0).Values -}}
enableServiceLinks: false
automountServiceAccountToken: false
dnsPolicy: ClusterFirst
dnsConfig:
  searches:
    - slurm-workers.{{ $values.namespaces.workers }}.svc.{{ $values.domain }}
    - {{ $values.namespaces.slurm }}.svc.{{ $values.domain }}
    - svc.{{ $values.domain }}
    - {{ $values.domain | quote }}
  options:
    - {name: ndots, value: "2"}
    - {name: timeout, value: "1"}
    - {name: attempts, value: "2"}
{{- with index $values.priorityClasses (index . 1) }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Placement of a component; call with its values. */}}
{{- define "slurm-platform.placement" -}}
{{- with get . "nodeSelector" }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with get . "tolerations" }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pod security of the control plane ("restricted"); call with the uid, which is the gid and the volumes' group too. */}}
{{- define "slurm-platform.restrictedPod" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
# Large volumes are not walked at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "slurm-platform.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/*
Configuration files as Slurm gets them: the given ones, the profile's lines appended to slurm.conf, and the profile's Lua
script if it has one and the files do not. A job_submit.lua among the files is switched on. JSON.
*/}}
{{- define "slurm-platform.files" -}}
{{- $profile := .Values.slurm.profile -}}
{{- $path := printf "files/profiles/%s.conf" $profile -}}
{{- $lines := .Files.Get $path -}}
{{- if not $lines -}}
{{- fail (printf "slurm.profile: there is no profile %q; use multifactor, fcfs or learned" $profile) -}}
{{- end -}}
{{- $files := deepCopy .Values.slurm.config.files -}}
{{- $conf := required "slurm.config.files must hold slurm.conf" (index $files "slurm.conf") -}}
{{- range regexFindAll "(?im)^[ \t]*(PriorityType|SchedulerType|JobSubmitPlugins)[ \t]*=" $conf -1 -}}
{{- fail (printf "slurm.config.files: slurm.conf sets %s itself; the profile %q does (slurm.profile), and Slurm would take whichever comes last" (trimSuffix "=" .) $profile) -}}
{{- end -}}
{{- if and (hasKey $files "job_submit.lua") (not (contains "JobSubmitPlugins=" $lines)) -}}
{{- $lines = printf "%s\nJobSubmitPlugins=lua\n" (trimSuffix "\n" $lines) -}}
{{- end -}}
{{- $_ := set $files "slurm.conf" (printf "%s\n\n%s" (trimSuffix "\n" $conf) $lines) -}}
{{- with .Files.Get (printf "files/profiles/%s.lua" $profile) -}}
{{- if not (hasKey $files "job_submit.lua") -}}
{{- $_ := set $files "job_submit.lua" . -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end }}

{{/* Hash of those files: the same number as SlurmConfigSpec.Hash in Go. */}}
{{- define "slurm-platform.configHash" -}}
{{- include "slurm-platform.files" . | sha256sum -}}
{{- end }}

{{/* The advisor's settings file: the values of advisor but for what is Kubernetes'. JSON. */}}
{{- define "slurm-platform.advisorSettings" -}}
{{- $settings := dict -}}
{{- range $name, $value := omit .Values.advisor "resources" -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $settings $name $value -}}
{{- end -}}
{{- end -}}
{{- toPrettyJson $settings -}}
{{- end }}

{{/* Volumes that many pods share. */}}
{{- define "slurm-platform.usersVolume" -}}
- name: users
  configMap:
    name: slurm-users
{{- end }}

{{/* A volume even where there are none, so that modules come by a push without new pods. */}}
{{- define "slurm-platform.modulesVolume" -}}
- name: modules
  configMap:
    name: slurm-modules
{{- end }}

{{/*
Keys for auth/slurm, readable by the pod's group; Slurm takes the paths from SLURM_SACK_JWKS (the key set) and, where the
Secret has none, from SLURM_SACK_KEY. The whole Secret is mounted, because sites made before the set have the single key
alone. Root-owned and group-readable (0440) is as tight as a Secret volume can be for a process that is not root.
*/}}
{{- define "slurm-platform.authKeyVolume" -}}
- name: auth-key
  secret:
    secretName: {{ .Values.secrets.authKey | quote }}
    defaultMode: 0440
{{- end }}

{{- define "slurm-platform.jwtKeyVolume" -}}
- name: jwt-key
  secret:
    secretName: {{ .Values.secrets.jwtKey | quote }}
    defaultMode: 0440
    items:
      - {key: jwt_hs256.key, path: jwt_hs256.key}
{{- end }}

{{- define "slurm-platform.scratchVolumes" -}}
- name: tmp
  emptyDir: {}
- name: run
  emptyDir:
    medium: Memory
    sizeLimit: 64Mi
{{- end }}

{{/* The API token as a volume, so that of a pod's containers only the one that needs it has it. */}}
{{- define "slurm-platform.tokenVolume" -}}
- name: api-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
      - downwardAPI:
          items:
            - path: namespace
              fieldRef: {fieldPath: metadata.namespace}
{{- end }}

{{- define "slurm-platform.databasePasswordVolume" -}}
- name: database-password
  secret:
    secretName: {{ .Values.secrets.database | quote }}
    defaultMode: 0440
    items:
      - {key: password, path: password}
{{- end }}

{{- define "slurm-platform.slurmdbdConf" -}}
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm-keys/jwt/jwt_hs256.key
DbdHost=slurm-accounting
DbdPort=6819
SlurmUser=slurm
PidFile=/run/slurmdbd/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost={{ include "slurm-platform.host" (list . "slurm-database") }}
StoragePort=3306
StorageUser=slurm
StorageLoc=slurm_acct_db
{{- range $what, $age := .Values.accounting.purge }}
{{- if $age }}
Purge{{ $what | title }}After={{ $age }}
{{- end }}
{{- end }}
{{- range .Values.accounting.extraLines }}
{{ . }}
{{- end }}
{{- end }}

{{- define "slurm-platform.mariadbConf" -}}
[mariadbd]
# Sized as Slurm's accounting guide asks: a large buffer pool, and locks that wait for slurmdbd's long roll-ups.
innodb_buffer_pool_size = {{ .Values.database.bufferPoolSize }}
innodb_log_file_size = {{ .Values.database.logFileSize }}
innodb_lock_wait_timeout = 900
max_allowed_packet = 64M
# slurmdbd's statements name no time zone and store seconds.
character_set_server = utf8mb4
collation_server = utf8mb4_general_ci
# Only slurmdbd connects: no names are looked up, and SQL reads and writes no file outside the scratch directory.
skip_name_resolve = ON
local_infile = OFF
secure_file_priv = /tmp
bind_address = *
port = 3306
tmpdir = /tmp
{{- end }}

{{- define "slurm-platform.restConf" -}}
ClusterName={{ .Values.clusterName }}
SlurmctldHost=slurm-controller-0({{ include "slurm-platform.host" (list . "slurm-controller") }})
SlurmctldPort=6817
AuthType=auth/slurm
CredType=cred/slurm
AuthAltTypes=auth/jwt
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={{ include "slurm-platform.host" (list . "slurm-accounting") }}
AccountingStoragePort=6819
{{- end }}

{{- define "slurm-platform.homeVolumes" -}}
- name: home
  persistentVolumeClaim:
    claimName: {{ .Values.claims.home | quote }}
- name: shared
  persistentVolumeClaim:
    claimName: {{ .Values.claims.shared | quote }}
{{- end }}
