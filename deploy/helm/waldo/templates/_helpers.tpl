{{- define "waldo.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "waldo.selector" -}}
app.kubernetes.io/name: waldo
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "waldo.labels" -}}
{{ include "waldo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "waldo.image" -}}
{{- $repository := required "image.repository: name the image that make release writes, as in registry.example.com/waldo" .repository -}}
{{- if .digest -}}{{ $repository }}@{{ .digest }}{{- else -}}{{ $repository }}:{{ .tag }}{{- end -}}
{{- end -}}

{{- define "waldo.gatewayImage" -}}
{{- $i := .Values.image -}}
{{- include "waldo.image" (dict "repository" $i.repository "digest" $i.digest "tag" (default .Chart.AppVersion $i.tag)) -}}
{{- end -}}

{{- define "waldo.workerImage" -}}
{{- $i := .Values.worker.image -}}
{{- if $i.repository -}}
{{- include "waldo.image" (dict "repository" $i.repository "digest" $i.digest "tag" (default .Chart.AppVersion $i.tag)) -}}
{{- else -}}{{- include "waldo.gatewayImage" . -}}{{- end -}}
{{- end -}}

{{- define "waldo.configMap" -}}
{{- if .Values.configMap -}}{{ .Values.configMap }}{{- else -}}{{ include "waldo.name" . }}-config{{- end -}}
{{- end -}}

{{/* gvisor, confined or engine. */}}
{{- define "waldo.sandbox" -}}
{{- $s := .Values.worker.sandbox -}}
{{- if ne $s "auto" -}}{{ $s }}
{{- else if lookup "node.k8s.io/v1" "RuntimeClass" "" .Values.worker.runtimeClassName -}}gvisor
{{- else -}}confined{{- end -}}
{{- end -}}

{{/* The level that workers serve. In a pod of RuntimeClass gvisor, waldo makes namespaces. */}}
{{- define "waldo.isolation" -}}
{{- $s := include "waldo.sandbox" . -}}
{{- if eq $s "gvisor" -}}namespace{{- else -}}{{ $s }}{{- end -}}
{{- end -}}

{{/* The pod's part of Pod Security "restricted". The numbers are those of the image. */}}
{{- define "waldo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The container's part. */}}
{{- define "waldo.security" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* What pods share: no token, no variables of services. */}}
{{- define "waldo.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext: {{ include "waldo.podSecurity" . | nindent 2 }}
{{- end -}}

{{/* Others can write the root of a volume, so waldo would refuse it. The first container makes a folder of mode 0700
below it, which the others mount in the place of the state directory. */}}
{{- define "waldo.init" -}}
- name: folder
  image: {{ .image }}
  imagePullPolicy: {{ .top.Values.image.pullPolicy }}
  args: [state-folder, /volume/state]
  securityContext: {{ include "waldo.security" .top | nindent 4 }}
  resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 256Mi}}
  volumeMounts:
    - {name: state, mountPath: /volume}
{{- if .top.Values.store.url }}
- name: migrate
  image: {{ .image }}
  imagePullPolicy: {{ .top.Values.image.pullPolicy }}
  args: [store, migrate, {{ .top.Values.store.url | quote }}]
  securityContext: {{ include "waldo.security" .top | nindent 4 }}
  resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 256Mi}}
  env: {{ include "waldo.storeEnv" .top | nindent 4 }}
  volumeMounts: {{ include "waldo.mounts" .top | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "waldo.storeEnv" -}}
- {name: WALDO_STATE, value: /var/lib/waldo}
{{- if .Values.store.password.secret }}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.store.password.secret }}, key: {{ .Values.store.password.key }}}}
{{- end }}
{{- if .Values.store.authority.secret }}
- {name: PGSSLROOTCERT, value: /etc/waldo/authority/ca.crt}
{{- end }}
{{- end -}}

{{/* The key is a variable: a file of a Secret is a link, and waldo reads no secret through one. */}}
{{- define "waldo.env" -}}
{{ include "waldo.storeEnv" . }}
{{- if .Values.worker.enabled }}
- name: WALDO_WORKERS_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.worker.key.secret }}, key: {{ .Values.worker.key.key }}}}
{{- end }}
{{- end -}}

{{- define "waldo.mounts" -}}
- {name: state, mountPath: /var/lib/waldo, subPath: state}
- {name: temp, mountPath: /tmp}
- {name: config, mountPath: /etc/waldo/waldo.yaml, subPath: waldo.yaml, readOnly: true}
{{- if .Values.store.authority.secret }}
- {name: authority, mountPath: /etc/waldo/authority, readOnly: true}
{{- end }}
{{- end -}}

{{- define "waldo.volumes" -}}
- {name: config, configMap: {name: {{ include "waldo.configMap" . }}}}
{{- with .Values.store.authority }}
{{- if .secret }}
- {name: authority, secret: {secretName: {{ .secret }}, items: [{key: {{ .key }}, path: ca.crt}]}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Mistakes that no schema finds. */}}
{{- define "waldo.check" -}}
{{- if and .Values.config .Values.configMap -}}{{ fail "config and configMap: give one of them" }}{{- end -}}
{{- if not (or .Values.config .Values.configMap) -}}
{{ fail "config: give the text of waldo.yaml (--set-file config=waldo.yaml), or name a ConfigMap in configMap" }}{{- end -}}
{{- if and (gt (int .Values.gateway.replicas) 1) (not .Values.store.url) -}}
{{ fail "gateway.replicas: more than one needs store.url, because replicas share a PostgreSQL database" }}{{- end -}}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/]*@" .Values.store.url -}}
{{ fail "store.url: it holds a password; put that into a Secret, and name it in store.password" }}{{- end -}}
{{- if .Values.worker.enabled -}}
{{- if not .Values.store.url -}}{{ fail "worker.enabled: workers take runs from a database: give store.url" }}{{- end -}}
{{- if not .Values.worker.key.secret -}}
{{ fail "worker.key.secret: name the Secret with the key that waldo worker --new-key wrote" }}{{- end -}}
{{- end -}}
{{- if and .Values.worker.enabled (eq (include "waldo.sandbox" .) "confined") (not .Values.worker.image.repository) -}}
{{ fail "worker.image.repository: level confined runs the image's own programs; name one with waldo, a shell and interpreters, or set worker.sandbox" }}{{- end -}}
{{- if and .Values.store.url (not .Values.network.store.cidr) (not .Values.network.store.podLabels) -}}
{{ fail "network.store: say where the database of store.url is, by cidr or by podLabels; everything else is denied" }}{{- end -}}
{{- end -}}

{{/* The head of a NetworkPolicy over the pods of one component, or all. */}}
{{- define "waldo.policy" -}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "waldo.name" .top }}-{{ .name }}
  labels: {{ include "waldo.labels" .top | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{ include "waldo.selector" .top | nindent 6 }}
      {{- with .component }}
      app.kubernetes.io/component: {{ . }}
      {{- end }}
{{- end -}}
