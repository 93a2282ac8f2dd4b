# For the scripts beside this one to source: the release server, with its files in a folder of its own, $dir. Ends with the
# script, however that ends.
dir=$(mktemp -d)
server=
cleanup() {
  [ -n "$server" ] && kill -KILL "$server" 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT

# A port that nobody listens on.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# Starts it on $secure_port and $insecure_port, which are SECURE_PORT and INSECURE_PORT, or free ones where these are not set.
start_server() {
  secure_port=${SECURE_PORT:-$(free_port)}
  insecure_port=${INSECURE_PORT:-$secure_port}
  while [ "$insecure_port" = "$secure_port" ]; do insecure_port=$(free_port); done
  "${CARGO_TARGET_DIR:-target}/release/coordination-apiserver" --cert-dir "$dir/pki" --secure-port "$secure_port" \
    --insecure-port "$insecure_port" 2>"$dir/err" &
  server=$!
  for _ in $(seq 50); do
    ! grep -q 'Ready: ' "$dir/err" || return 0
    sleep 0.1
  done
  cat "$dir/err" >&2
  exit 1
}

# Ends the script if the server does not end in order, or has panicked before.
stop_server() {
  if ! { kill -TERM "$server" && wait "$server"; } || grep -q 'panicked' "$dir/err"; then
    cat "$dir/err" >&2
    exit 1
  fi
  server=
}
