# Shared code of the scripts beside this file, which source it. It runs the release server with its files in a temporary
# folder, $dir. The server ends with the script, whatever the reason.
dir=$(mktemp -d)
server=
cleanup() {
  [ -n "$server" ] && kill -KILL "$server" 2>/dev/null
  rm -rf "$dir"
}
trap cleanup EXIT

# Prints a free port.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# Starts the server on $secure_port and $insecure_port. These are SECURE_PORT and INSECURE_PORT, or free ports by
# default.
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

# Stops the server. Ends the script if the stop is not orderly or the server has panicked.
stop_server() {
  if ! { kill -TERM "$server" && wait "$server"; } || grep -q 'panicked' "$dir/err"; then
    cat "$dir/err" >&2
    exit 1
  fi
  server=
}
