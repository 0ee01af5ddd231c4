{{/* Short enough for every suffix, and without dots: names of Services and Jobs are 63 characters of that. */}}
{{- define "kube-node-ready.fullname" -}}
{{- $name := .Values.fullnameOverride }}
{{- if not $name }}
{{- $name = contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) }}
{{- end }}
{{- $name | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* Never change these: selectors are immutable. Takes root and component. */}}
{{- define "kube-node-ready.selector" -}}
app.kubernetes.io/name: kube-node-ready
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Takes root and component. */}}
{{- define "kube-node-ready.labels" -}}
{{ include "kube-node-ready.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kube-node-ready.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/*
The configuration file: controller.config, with what only the chart can know filled in. Of the short names only those
that the templates look at are put in; all of them override the file anyway, as environment variables.
*/}}
{{- define "kube-node-ready.config" -}}
{{- $config := deepCopy .Values.controller.config }}
{{- $image := deepCopy .Values.image | merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) }}
{{- $account := printf "%s-worker" (include "kube-node-ready.fullname" .) }}
{{- $worker := dict "image" $image "namespace" .Release.Namespace "serviceAccountName" $account }}
{{- $config = merge $config (dict "worker" $worker) }}
{{- /* A DaemonSet has no workers, but for the one that `helm test` makes next to it. */}}
{{- if eq .Values.deploymentMode "daemonset" }}{{ $_ := set $config.worker "namespace" .Release.Namespace }}{{ end }}
{{- with .Values.config.taintKey }}{{ $_ := set (first $config.nodeManagement.taints) "key" . }}{{ end }}
{{- with .Values.config.taintEffect }}{{ $_ := set (first $config.nodeManagement.taints) "effect" . }}{{ end }}
{{- with .Values.config.verifiedLabelValue }}{{ $_ := set $config.nodeManagement.verifiedLabel "value" . }}{{ end }}
{{- with .Values.config.verifiedLabel }}{{ $_ := set $config.nodeManagement.verifiedLabel "key" . }}{{ end }}
{{- if kindIs "bool" .Values.config.enableMetrics }}{{ $_ := set $config.metrics "enabled" .Values.config.enableMetrics }}{{ end }}
{{- with .Values.config.metricsPort }}
{{- $_ := set $config.metrics "port" . }}
{{- $_ := set $config.health "port" . }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The short names, as the environment variables of docs/config.md. */}}
{{- define "kube-node-ready.env" -}}
{{- $variables := dict
  "INITIAL_TIMEOUT" "initialTimeout"
  "CHECK_TIMEOUT" "checkTimeout"
  "DNS_TEST_DOMAINS" "dnsTestDomains"
  "ENABLE_CONNECTIVITY_MATRIX" "enableConnectivityMatrix"
  "MAX_RETRIES" "maxRetries"
  "RETRY_BACKOFF" "retryBackoff"
  "TAINT_KEY" "taintKey"
  "TAINT_VALUE" "taintValue"
  "TAINT_EFFECT" "taintEffect"
  "VERIFIED_LABEL" "verifiedLabel"
  "VERIFIED_LABEL_VALUE" "verifiedLabelValue"
  "ENABLE_METRICS" "enableMetrics"
  "METRICS_PORT" "metricsPort"
  "LOG_LEVEL" "logLevel"
  "LOG_FORMAT" "logFormat"
}}
{{- range $variable, $key := $variables }}
{{- $value := index $.Values.config $key }}
{{- $text := kindIs "slice" $value | ternary (join "," $value) (kindIs "invalid" $value | ternary "" (toString $value)) }}
{{ $variable }}: {{ $text | quote }}
{{- end }}
{{- end }}

{{/* What is mounted and read by all pods of the chart. Takes root, component, suffix and, for copies of their own, hook. */}}
{{- define "kube-node-ready.configMaps" -}}
{{- $name := include "kube-node-ready.fullname" .root }}
{{- $metadata := dict
  "namespace" .root.Release.Namespace
  "labels" (include "kube-node-ready.labels" . | fromYaml)
}}
{{- with .hook }}{{ $_ := set $metadata "annotations" (include "kube-node-ready.hook" (dict "hook" . "weight" -5) | fromYaml) }}{{ end -}}
# The configuration file.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-file{{ .suffix }}
  {{- toYaml $metadata | nindent 2 }}
data:
  config.yaml: |
    {{- include "kube-node-ready.config" .root | nindent 4 }}
---
# Environment variables, which override the file. All of them, those that are not set as empty ones: what an upgrade has
# left that failed is taken back only by a value, not by a gap.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-config{{ .suffix }}
  {{- toYaml $metadata | nindent 2 }}
data:
  {{- include "kube-node-ready.env" .root | trim | nindent 2 }}
{{- end }}

{{/* Keys of the taints of all gates, as tolerations. By key alone, whatever the value and the effect. Takes the configuration. */}}
{{- define "kube-node-ready.gateTolerations" -}}
{{- $keys := list }}
{{- range .nodeManagement.taints }}{{ $keys = append $keys .key }}{{ end }}
{{- range .gates }}{{ $keys = append $keys ((.taint | default dict).key | default "startup.k8s.io/initializing") }}{{ end }}
{{- range uniq $keys }}
- {key: {{ . | quote }}, operator: Exists}
{{- end }}
{{- end }}

{{/* The service account of one of controller, worker, daemonset, release, doctor. Takes root and who. */}}
{{- define "kube-node-ready.account" -}}
{{- $name := include "kube-node-ready.fullname" .root }}
{{- if eq .who "worker" }}
{{- (include "kube-node-ready.config" .root | fromYaml).worker.serviceAccountName }}
{{- else if eq .who "controller" }}
{{- .root.Values.serviceAccount.name | default (printf "%s-controller" $name) }}
{{- else if eq .who "daemonset" }}
{{- .root.Values.serviceAccount.name | default $name }}
{{- else }}
{{- printf "%s-%s" $name .who }}
{{- end }}
{{- end }}

{{/* A hook of Helm. Takes hook and weight: service accounts and permissions come before what uses them. */}}
{{- define "kube-node-ready.hook" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end }}

{{/*
A binding, and the role that it binds as far as its rules, which the caller adds.
Takes root, who, name (what comes after the name of the account) and namespace (empty: the whole cluster).
*/}}
{{- define "kube-node-ready.role" -}}
{{- $kind := empty .namespace | ternary "ClusterRole" "Role" }}
{{- $home := .root.Release.Namespace }}
{{- if eq .who "worker" }}{{ $home = (include "kube-node-ready.config" .root | fromYaml).worker.namespace }}{{ end }}
{{- $hook := get (dict "release" "post-delete" "doctor" "test") .who }}
{{- $metadata := dict
  "name" (printf "%s-%s%s" (include "kube-node-ready.fullname" .root) .who .name)
  "labels" (include "kube-node-ready.labels" (dict "root" .root "component" .who) | fromYaml)
}}
{{- with .namespace }}{{ $_ := set $metadata "namespace" . }}{{ end }}
{{- if $hook }}{{ $_ := set $metadata "annotations" (include "kube-node-ready.hook" (dict "hook" $hook "weight" -5) | fromYaml) }}{{ end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $metadata.name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "kube-node-ready.account" . }}
    namespace: {{ $home | quote }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- toYaml $metadata | nindent 2 }}
{{- end }}

{{/* Ports of a container. One number for both is one port: the API server takes no port twice. Takes the configuration. */}}
{{- define "kube-node-ready.ports" -}}
- {name: health, containerPort: {{ .health.port }}}
{{- if and .metrics.enabled (ne (int .metrics.port) (int .health.port)) }}
- {name: metrics, containerPort: {{ .metrics.port }}}
{{- end }}
{{- end }}

{{/* What runs one of our commands once, in a hook. Takes root, who, args and the suffix of its ConfigMaps. */}}
{{- define "kube-node-ready.hookPod" -}}
{{- $root := .root }}
{{- $config := include "kube-node-ready.config" $root | fromYaml -}}
restartPolicy: Never
serviceAccountName: {{ include "kube-node-ready.account" . }}
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $root.Values.controller.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.controller.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
# It must run even if every node is closed.
tolerations:
  {{- include "kube-node-ready.gateTolerations" $config | trim | nindent 2 }}
  {{- with $root.Values.controller.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
containers:
  - name: {{ .who }}
    image: {{ include "kube-node-ready.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      - {{ .who }}
      - --config=/etc/kube-node-ready/config.yaml
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
    env:
      - name: POD_NAME
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      - name: POD_UID
        valueFrom: {fieldRef: {fieldPath: metadata.uid}}
      - name: POD_NAMESPACE
        valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
      {{- with $root.Values.controller.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    envFrom:
      - configMapRef: {name: {{ include "kube-node-ready.fullname" $root }}-config{{ .suffix }}}
    resources:
      requests: {cpu: 50m, memory: 32Mi}
      limits: {memory: 128Mi}
    securityContext:
      {{- toYaml $root.Values.securityContext | nindent 6 }}
    volumeMounts:
      - {name: config, mountPath: /etc/kube-node-ready, readOnly: true}
volumes:
  - name: config
    configMap: {name: {{ include "kube-node-ready.fullname" $root }}-file{{ .suffix }}}
{{- end }}

{{/* "true" if all gates are to be opened at the end. Whoever only looked on has closed none. */}}
{{- define "kube-node-ready.releases" -}}
{{- $reconciliation := (include "kube-node-ready.config" . | fromYaml).reconciliation }}
{{- and (eq .Values.uninstall "release") (not $reconciliation.dryRun) (not $reconciliation.paused) }}
{{- end }}

{{/* "true" if a ValidatingAdmissionPolicy is to guard the account of the DaemonSet. */}}
{{- define "kube-node-ready.hasPolicy" -}}
{{- /* Without an API server to ask, Helm knows its version only. */}}
{{- $known := or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- $asked := .Values.daemonset.admissionPolicy }}
{{- or (eq $asked "always") (and (eq $asked "auto") $known) }}
{{- end }}
