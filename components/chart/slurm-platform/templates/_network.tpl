{{/* Pods of a role as a peer; call with (list $ roleEntry role). */}}
{{- define "slurm-platform.peer" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ (index (index . 0).Values.namespaces (index . 1).namespace) | quote }}
  podSelector:
    matchLabels:
      {{- include "slurm-platform.selector" (index . 2) | nindent 6 }}
{{- end }}

{{/* ports of a rule; call with (list $ ports). "any" leaves them out: every port of every protocol. */}}
{{- define "slurm-platform.policyPorts" -}}
{{- $values := (index . 0).Values -}}
{{- if not (has "any" (index . 1)) -}}
ports:
{{- range index . 1 }}
{{- if eq (toString .) "srun" }}
  - {protocol: TCP, port: {{ $values.ports.srunFirst }}, endPort: {{ $values.ports.srunLast }}}
{{- else }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Who answers DNS. */}}
{{- define "slurm-platform.dnsPeers" -}}
{{- $dns := .Values.network.dns -}}
{{- if $dns.namespace -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ $dns.namespace | quote }}
  {{- with $dns.podLabels }}
  podSelector:
    matchLabels:
      {{- toYaml . | nindent 6 }}
  {{- end }}
{{- end }}
{{- range $dns.cidrs }}
- ipBlock: {cidr: {{ . }}}
{{- end }}
{{- end }}

{{/* What "beyond the cluster" leaves out of a range that holds it: pods and Services. Call with (list $ cidr). */}}
{{- define "slurm-platform.clusterExcept" -}}
{{- if hasSuffix "/0" (index . 1) -}}
- {{ (index . 0).Values.network.pods }}
- {{ (index . 0).Values.network.services }}
{{- end -}}
{{- end }}

{{/* Ingress rules of a role; call with (list $ table role). */}}
{{- define "slurm-platform.ingress" -}}
{{- $root := index . 0 }}{{ $table := index . 1 }}{{ $role := index . 2 }}
{{- range $table.flows }}
{{- if eq .to $role }}
# {{ .from }}: {{ .why }}
- from:
    {{- include "slurm-platform.peer" (list $root (index $table.roles .from) .from) | nindent 4 }}
  {{- include "slurm-platform.policyPorts" (list $root .ports) | nindent 2 }}
{{- end }}
{{- end }}
{{- range $table.outside }}
{{- if and (eq .to $role) (eq .from "lan") $root.Values.network.lan }}
# the lab's network: {{ .why }}
- from:
    - ipBlock: {cidr: {{ $root.Values.network.lan }}}
  {{- include "slurm-platform.policyPorts" (list $root .ports) | nindent 2 }}
{{- end }}
{{- if and (eq .to $role) (eq .from "monitoring") $root.Values.namespaces.monitoring }}
# Prometheus: {{ .why }}
- from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ $root.Values.namespaces.monitoring | quote }}
      podSelector:
        matchLabels:
          app.kubernetes.io/name: prometheus
  {{- include "slurm-platform.policyPorts" (list $root .ports) | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Egress rules of a role; call with (list $ table role). */}}
{{- define "slurm-platform.egress" -}}
{{- $root := index . 0 }}{{ $table := index . 1 }}{{ $role := index . 2 }}
{{- $network := $root.Values.network }}
{{- range $table.flows }}
{{- if eq .from $role }}
# {{ .to }}: {{ .why }}
- to:
    {{- include "slurm-platform.peer" (list $root (index $table.roles .to) .to) | nindent 4 }}
  {{- include "slurm-platform.policyPorts" (list $root .ports) | nindent 2 }}
{{- end }}
{{- end }}
{{- range $table.outside }}
{{- if eq .from $role }}
{{- if eq .to "apiServer" }}
# the Kubernetes API: {{ .why }}
- to:
    - ipBlock: {cidr: {{ $network.apiServer }}}
  ports:
    - {protocol: TCP, port: {{ $network.apiServerPort }}}
{{- else if and (eq .to "egress") $network.egress }}
# beyond the cluster: {{ .why }}
- to:
    {{- range $network.egress }}
    - ipBlock:
        cidr: {{ . }}
        {{- with include "slurm-platform.clusterExcept" (list $root .) }}
        except:
          {{- . | nindent 10 }}
        {{- end }}
    {{- end }}
{{- else if eq .to "dns" }}
# DNS: {{ .why }}
- to:
    {{- include "slurm-platform.dnsPeers" $root | trim | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
