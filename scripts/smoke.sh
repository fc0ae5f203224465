#!/usr/bin/env bash
# Starts bin/ax-server demo on a free port with data of its own, and walks through the console
# in a real browser (web/e2e/smoke.mjs). AX_SHOTS=DIR keeps the pictures.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/ax-smoke.XXXXXX")
pid=
finish() {
  local code=$?
  if [ -n "$pid" ]; then
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  if [ $code -ne 0 ]; then
    echo "--- the demo's last lines"
    tail -15 "$dir/demo.out" || true
    tail -15 "$dir/data/server.log" || true
  fi
  rm -rf "$dir"
  exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM

bin/ax-server demo --listen 127.0.0.1:0 --data "$dir/data" >"$dir/demo.out" 2>&1 &
pid=$!
value() { sed -n "s/^ *$1  *//p" "$dir/demo.out" | head -1; }
for _ in $(seq 120); do
  [ -n "$(value password)" ] && break
  kill -0 "$pid" 2>/dev/null || { echo "the demo ended"; exit 1; }
  sleep 0.5
done
AX_URL=$(value console) AX_USER=$(value user) AX_PASSWORD=$(value password)
export AX_URL AX_USER AX_PASSWORD
[ -n "$AX_URL" ] && [ -n "$AX_PASSWORD" ] || { echo "the demo did not say where it listens"; exit 1; }
export AX_SHOTS=${AX_SHOTS:-test-results/shots}
echo "demo at $AX_URL, pictures in $AX_SHOTS"
# The first sync shows that executors are there and work.
for _ in $(seq 120); do
  grep -q '^sync ' "$dir/demo.out" && break
  sleep 0.5
done
if [ -z "${AX_CHROMIUM:-}" ] && command -v chromium >/dev/null; then
  AX_CHROMIUM=$(command -v chromium)
  export AX_CHROMIUM
fi
node web/e2e/smoke.mjs
