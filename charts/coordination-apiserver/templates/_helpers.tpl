{{- define "coordination-apiserver.selector" -}}
app.kubernetes.io/component: server
app.kubernetes.io/name: coordination-apiserver
{{- end }}

{{- /* Labels of an object of the component COMPONENT. Argument: (list CONTEXT COMPONENT). */}}
{{- define "coordination-apiserver.labels-of" -}}
{{- $chart := (first .).Chart -}}
app.kubernetes.io/component: {{ last . }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
app.kubernetes.io/name: coordination-apiserver
helm.sh/chart: {{ printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" }}
{{- end }}

{{- define "coordination-apiserver.labels" -}}
{{ include "coordination-apiserver.labels-of" (list . "server") }}
{{- end }}

{{- /* Name, namespace and labels. The namespace is fixed: the certificate, the APIService and the Leases of replicas
  depend on it. */}}
{{- define "coordination-apiserver.metadata" -}}
{{- if ne .Release.Namespace "kube-system" }}
{{- fail "install the chart into the namespace kube-system (--namespace kube-system)" }}
{{- end -}}
name: coordination-apiserver
namespace: kube-system
labels:
  {{- include "coordination-apiserver.labels" . | nindent 2 }}
{{- end }}

{{- define "coordination-apiserver.subjects" -}}
{{- if eq .Values.variant "static-pod" -}}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: coordination-apiserver
{{- else -}}
- kind: ServiceAccount
  name: coordination-apiserver
  namespace: kube-system
{{- end }}
{{- end }}

{{- define "coordination-apiserver.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Not empty if the Pod needs a client certificate for etcd. */}}
{{- define "coordination-apiserver.has-etcd" -}}
{{- if or (ne .Values.variant "disk") .Values.etcd.clusterServers }}true{{ end }}
{{- end }}

{{- /* The Pod of the Deployment and of the DaemonSet. */}}
{{- define "coordination-apiserver.pod" -}}
{{- $disk := eq .Values.variant "disk" -}}
metadata:
  labels:
    {{- include "coordination-apiserver.selector" . | nindent 4 }}
spec:
  serviceAccountName: coordination-apiserver
  automountServiceAccountToken: true
  priorityClassName: system-node-critical
  # In the node's network, the server has the same address after a reboot, and needs no Pod network.
  hostNetwork: true
  terminationGracePeriodSeconds: 10
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  nodeSelector:
    {{- if .Values.nodeSelector }}
    {{- toYaml .Values.nodeSelector | nindent 4 }}
    {{- else if $disk }}
    coordination-apiserver/data: ""
    {{- else }}
    node-role.kubernetes.io/control-plane: ""
    {{- end }}
  tolerations:
  {{- if $disk }}
  - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
  # Without this Pod, the node's heartbeats fail. So these taints of its own node must not keep the Pod away.
  - {key: node.kubernetes.io/not-ready, operator: Exists}
  - {key: node.kubernetes.io/unreachable, operator: Exists}
  {{- else }}
  - operator: Exists
  {{- end }}
  securityContext:
    # Root owns the data folder and kubeadm's files. This root has no capabilities.
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: coordination-apiserver
    image: {{ include "coordination-apiserver.image" . | quote }}
    {{- with .Values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    args:
    - --bind-address=0.0.0.0
    - --secure-port=10269
    - --max-connections={{ .Values.maxConnections }}
    - --tls-cert-file=/etc/coordination-apiserver/serving/tls.crt
    - --tls-private-key-file=/etc/coordination-apiserver/serving/tls.key
    - --requestheader-from-cluster
    - --namespaces-from-cluster
    {{- if $disk }}
    - --data-dir=/var/lib/coordination-apiserver
    {{- else }}
    - --storage=etcd
    - --etcd-servers=$(ETCD_SERVERS)
    - --etcd-cafile=/etc/coordination-apiserver/etcd/ca.crt
    - --etcd-certfile=/etc/coordination-apiserver/etcd/tls.crt
    - --etcd-keyfile=/etc/coordination-apiserver/etcd/tls.key
    {{- end }}
    {{- if .Values.etcd.clusterServers }}
    - --cluster-etcd-servers=$(CLUSTER_ETCD_SERVERS)
    - --cluster-etcd-cafile=/etc/coordination-apiserver/etcd/ca.crt
    - --cluster-etcd-certfile=/etc/coordination-apiserver/etcd/tls.crt
    - --cluster-etcd-keyfile=/etc/coordination-apiserver/etcd/tls.key
    {{- end }}
    {{- if not $disk }}
    - --publish-endpoints=kube-system/coordination-apiserver
    - --advertise-address=$(HOST_IP)
    - --node-name=$(NODE_NAME)
    {{- end }}
    - --reclaim-seconds={{ .Values.reclaimSeconds }}
    - --log-format=json
    {{- range .Values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
    {{- if include "coordination-apiserver.has-etcd" . }}
    env:
    {{- if not $disk }}
    - name: ETCD_SERVERS
      value: {{ .Values.etcd.servers | quote }}
    {{- end }}
    {{- with .Values.etcd.clusterServers }}
    - name: CLUSTER_ETCD_SERVERS
      value: {{ . | quote }}
    {{- end }}
    {{- if not $disk }}
    - name: HOST_IP
      valueFrom:
        fieldRef:
          fieldPath: status.hostIP
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    {{- end }}
    {{- end }}
    ports:
    - name: https
      containerPort: 10269
    # The path is not /readyz, because the kubelet must not restart a server that waits for kube-apiserver.
    startupProbe:
      httpGet: {path: /livez, port: https, scheme: HTTPS}
      periodSeconds: 1
      failureThreshold: 60
    readinessProbe:
      httpGet: {path: /readyz, port: https, scheme: HTTPS}
      periodSeconds: 2
      timeoutSeconds: 2
      failureThreshold: 2
    livenessProbe:
      httpGet: {path: /livez, port: https, scheme: HTTPS}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 3
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
    - {name: serving, mountPath: /etc/coordination-apiserver/serving, readOnly: true}
    {{- if $disk }}
    - {name: data, mountPath: /var/lib/coordination-apiserver}
    {{- end }}
    {{- if eq .Values.variant "kubeadm" }}
    - {name: etcd-ca, mountPath: /etc/coordination-apiserver/etcd/ca.crt, readOnly: true}
    - {name: etcd-client, mountPath: /etc/coordination-apiserver/etcd/tls.crt, readOnly: true}
    - {name: etcd-client-key, mountPath: /etc/coordination-apiserver/etcd/tls.key, readOnly: true}
    {{- else if include "coordination-apiserver.has-etcd" . }}
    - {name: etcd, mountPath: /etc/coordination-apiserver/etcd, readOnly: true}
    {{- end }}
  volumes:
  - name: serving
    secret:
      secretName: coordination-apiserver-serving
      defaultMode: 0400
      items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
  {{- if $disk }}
  - name: data
    hostPath: {path: /var/lib/coordination-apiserver, type: DirectoryOrCreate}
  {{- end }}
  {{- if eq .Values.variant "kubeadm" }}
  # Only these files are mounted, since their folder also contains the cluster's keys.
  - name: etcd-ca
    hostPath: {path: /etc/kubernetes/pki/etcd/ca.crt, type: File}
  - name: etcd-client
    hostPath: {path: /etc/kubernetes/pki/apiserver-etcd-client.crt, type: File}
  - name: etcd-client-key
    hostPath: {path: /etc/kubernetes/pki/apiserver-etcd-client.key, type: File}
  {{- else if include "coordination-apiserver.has-etcd" . }}
  - name: etcd
    secret:
      secretName: {{ .Values.etcd.secretName }}
      defaultMode: 0400
      items:
      - {key: ca.crt, path: ca.crt}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
  {{- end }}
{{- end }}
