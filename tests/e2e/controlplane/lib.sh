# shellcheck shell=bash
# Shared code of the scripts in this folder: paths, ports, and functions that start, find and end processes. Scripts
# source this file.
#
#   E2E_KUBERNETES older control plane, such as 1.34: a folder beside this file with its go.mod (../go.mod)
#   E2E_CACHE      built programs, kept between runs     (${XDG_CACHE_HOME:-~/.cache}/coordination-apiserver/e2e)
#   E2E_STATE      keys, data, logs, PID files of one run (target/e2e in the repository)
#   E2E_PORT_BASE  first of eight ports on 127.0.0.1      (21440)
#   E2E_SHARDS     1 turns on the feature gate ShardedListAndWatch in both servers, and adds shard selectors to the
#                  random requests
#   E2E_APISERVER_HOST   address of kube-apiserver in the kubeconfigs (127.0.0.1)
#   E2E_KUBECTL    kubectl to use                         (the one that `build` compiled)

controlplane=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # for the scripts that source this file
{
  e2e=$(dirname "$controlplane")
  repository=$(cd "$e2e/../.." && pwd)
  cache=${E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coordination-apiserver/e2e}
  # Folder of the go.mod that pins the control plane, and folder of the control plane's programs. The programs of the
  # tests are in $cache/bin.
  pins=$e2e bin=$cache/bin
  [[ -z ${E2E_KUBERNETES:-} ]] || pins=$controlplane/$E2E_KUBERNETES bin=$cache/$E2E_KUBERNETES/bin
  state=${E2E_STATE:-$repository/target/e2e}
  pki=$state/pki
  base=${E2E_PORT_BASE:-21440}
  etcd_port=$base etcd_peer_port=$((base + 1)) apiserver_port=$((base + 2)) kcm_port=$((base + 3))
  server_port=$((base + 4)) replica_1_port=$((base + 5)) replica_2_port=$((base + 6))
  apiserver_2_port=$((base + 7))
  # Address of kube-apiserver in the kubeconfigs.
  apiserver_host=${E2E_APISERVER_HOST:-127.0.0.1}
  kubectl=${E2E_KUBECTL:-$bin/kubectl}
  apiservice=v1.coordination.k8s.io
  server_name=coordination-apiserver.kube-system.svc
  automanaged=kube-aggregator.kubernetes.io/automanaged
}

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() {
  note "$*"
  exit 1
}

[[ -f $pins/go.mod ]] || fail "E2E_KUBERNETES: $pins/go.mod does not exist"

# need TOOL WHY: ends the script if a tool is missing
need() { command -v "$1" >/dev/null || fail "$1 is missing: $2"; }

# as NAME ARG...: runs kubectl as one of the users that `pki` created
as() {
  local user=$1
  shift
  "$kubectl" --kubeconfig "$state/$user.kubeconfig" "$@"
}
admin() { as admin "$@"; }

# direct NAME ARG...: runs kubectl directly against our server, without kube-apiserver
direct() {
  local user=$1
  shift
  "$kubectl" --kubeconfig "$state/$user.direct.kubeconfig" "$@"
}

# within SECONDS COMMAND...: repeats a command until it succeeds. At the timeout, it prints the last output and fails.
within() {
  local until=$((SECONDS + $1)) said
  shift
  until said=$("$@" 2>&1); do
    ((SECONDS < until)) || {
      note "failed repeatedly: $*: $said"
      return 1
    }
    sleep 0.2
  done
}

# born PID: prints the start time of a process, in clock ticks since boot (proc_pid_stat(5), field 22). PID and start
# time together identify a process. A command line does not: it can change, and is empty while the kernel loads a
# program.
born() {
  local fields
  fields=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The second field is a name in parentheses, which may contain any character. The text after the last parenthesis
  # begins with the third field.
  read -ra fields <<<"${fields##*) }"
  printf '%s\n' "${fields[19]}"
}

# alive NAME: prints the PID of a process of this run, and fails if the process does not run
alive() {
  local pid was
  pid=$(cat "$state/run/$1.pid" 2>/dev/null) && was=$(cat "$state/run/$1.born" 2>/dev/null) || return 1
  [[ -n $pid && -n $was && $(born "$pid") == "$was" ]] && ! ended "$pid" || return 1
  printf '%s\n' "$pid"
}

# define NAME BINARY ARG...: stores the command line of a process
define() {
  local name=$1
  shift
  mkdir -p "$state/run" "$state/log"
  printf '%s\0' "$@" >"$state/run/$name.cmd"
}

# define_apiserver NAME FLAG...: defines a kube-apiserver with the flags of kubeadm. The caller adds the addresses. The
# feature gate CoordinatedLeaderElection is on, with its API. Without the gate, kube-apiserver drops the fields strategy
# and preferredHolder of a Lease. The words of `prefix` precede the command line.
define_apiserver() {
  local gates=CoordinatedLeaderElection=true
  [[ -z ${E2E_SHARDS:-} ]] || gates+=,ShardedListAndWatch=true
  # With the CA of their certificates, kube-apiservers forward requests to each other (since 1.36).
  local peers=()
  ! "$bin/kube-apiserver" --help | grep 'UnknownVersionInteroperabilityProxy=.*default=true' >/dev/null ||
    peers=(--peer-ca-file "$pki/ca.crt")
  define "$1" ${prefix[@]+"${prefix[@]}"} "$bin/kube-apiserver" "${@:2}" \
    --service-cluster-ip-range 10.96.0.0/16 --cert-dir "$state/$1" \
    --tls-cert-file "$pki/kube-apiserver.crt" --tls-private-key-file "$pki/kube-apiserver.key" \
    --client-ca-file "$pki/ca.crt" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --feature-gates "$gates" --runtime-config coordination.k8s.io/v1beta1=true \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/service-accounts.pub" \
    --service-account-signing-key-file "$pki/service-accounts.key" \
    --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- ${peers[@]+"${peers[@]}"} \
    --proxy-client-cert-file "$pki/front-proxy-client.crt" --proxy-client-key-file "$pki/front-proxy-client.key"
}

# define_controller_manager NAME KUBECONFIG FLAG...: defines a kube-controller-manager. The words of `prefix` precede
# the command line.
define_controller_manager() {
  define "$1" ${prefix[@]+"${prefix[@]}"} "$bin/kube-controller-manager" --bind-address 127.0.0.1 \
    --secure-port "$kcm_port" --tls-cert-file "$pki/kube-controller-manager-serving.crt" \
    --tls-private-key-file "$pki/kube-controller-manager-serving.key" \
    --kubeconfig "$2" --authentication-kubeconfig "$2" --authorization-kubeconfig "$2" "${@:3}" \
    --client-ca-file "$pki/ca.crt" --root-ca-file "$pki/ca.crt" --use-service-account-credentials \
    --service-account-private-key-file "$pki/service-accounts.key"
}

# launch NAME: starts the process of `define`, unless it runs. Its output goes to log/NAME.log.
launch() {
  local name=$1 command pid
  [[ -s $state/run/$name.cmd ]] || fail "$name is not defined: no script has called define for it"
  ! alive "$name" >/dev/null || return 0
  mapfile -d '' -t command <"$state/run/$name.cmd"
  [[ -x ${command[0]} ]] || fail "${command[0]} is missing"
  # A separate session, so that Ctrl-C reaches only the tests. `down` ends the processes in order.
  setsid "${command[@]}" >>"$state/log/$name.log" 2>&1 </dev/null &
  pid=$!
  disown
  # A process that has ended already has no start time, and `alive` does not find it.
  born "$pid" >"$state/run/$name.born" || true
  printf '%s\n' "$pid" >"$state/run/$name.pid"
}

# ended PID: succeeds if all threads of a process have ended, even if no parent has read its exit status. The main
# thread may end first. The sockets are closed when the last thread ends.
ended() {
  local status
  status=$(cat "/proc/$1/status" 2>/dev/null) || return 0
  [[ $status =~ State:[[:space:]]*Z && $status =~ Threads:[[:space:]]*1[[:space:]] ]]
}

# members NAME: prints the processes that NAME stands for. Over etcd these are two replicas, without their balancer.
members() {
  if [[ $1 == coordination-apiserver && -e $state/run/replica-1.cmd ]]; then
    printf '%s\n' replica-1 replica-2
  else
    printf '%s\n' "$1"
  fi
}

# halt NAME [SIGNAL]: ends a process and waits for its end; sends SIGKILL after 20 s
halt() {
  local name=$1 pid tries
  if pid=$(alive "$name"); then
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    for ((tries = 0; tries < 200; tries++)); do
      ! ended "$pid" || break
      sleep 0.1
    done
    if ! ended "$pid"; then
      note "$name (PID $pid) did not end in 20 s and is killed"
      kill -KILL "$pid" 2>/dev/null || true
    fi
  fi
  rm -f "$state/run/$name".{pid,born}
}

# ready_at PORT: succeeds if one of our servers is ready. With --server, kubectl ignores tls-server-name in the
# kubeconfig.
ready_at() {
  direct admin get --raw /readyz --server "https://127.0.0.1:$1" \
    --tls-server-name "$server_name"
}

# ready NAME: succeeds if a process is ready
ready() {
  case $1 in
  etcd) (exec 3<>"/dev/tcp/127.0.0.1/$etcd_port") ;;
  kube-apiserver) admin get --raw /readyz ;;
  kube-apiserver-2) admin get --raw /readyz --server "https://127.0.0.1:$apiserver_2_port" ;;
  # kube-controller-manager must lead: before that it is healthy, but does no work.
  kube-controller-manager)
    admin get --raw /metrics --server "https://127.0.0.1:$kcm_port" |
      grep '^leader_election_master_status{name="kube-controller-manager"} 1$'
    ;;
  coordination-apiserver | balancer) direct admin get --raw /readyz ;;
  replica-1) ready_at "$replica_1_port" ;;
  replica-2) ready_at "$replica_2_port" ;;
  *) fail "unknown process $1" ;;
  esac
}

# await NAME SECONDS: waits until a process is ready; prints its log if it is not
await() {
  local name=$1 until=$((SECONDS + $2))
  until ready "$name" >/dev/null 2>&1; do
    if ! alive "$name" >/dev/null; then
      tail -n 15 "$state/log/$name.log" >&2
      fail "$name ended before it was ready; its whole log is in $state/log/$name.log"
    elif ((SECONDS >= until)); then
      tail -n 15 "$state/log/$name.log" >&2
      fail "$name is not ready after $2 s; its whole log is in $state/log/$name.log"
    fi
    sleep 0.1
  done
}
