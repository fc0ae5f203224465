#!/usr/bin/env bash
# Everything that CI runs, one step after another, with a table at the end. A step that
# fails does not keep the others from running; its last lines are shown again at the end.
#
#   AX_SHORT=1   leaves out the race detector and the browser
#   AX_STEPS=…   an extended regular expression: only the steps whose name it matches
#   AX_TEST_MYSQL=mysql://user:password@host:port   uses that server in place of a private one
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
logs=$root/test-results
mkdir -p "$logs"
# Those of the Makefile, so that everything is compiled once.
export CGO_ENABLED=${CGO_ENABLED:-0} GOFLAGS=${GOFLAGS:--trimpath}

names=() verdicts=() times=()
passed=0 failed=0 began=$SECONDS
database= beat=

finish() {
  [ -z "$beat" ] || kill "$beat" 2>/dev/null
  if [ -n "$database" ]; then
    scripts/mariadb.sh stop "$database"
    rm -rf "$database"
  fi
}
trap finish EXIT
# A signal ends the step that runs, too: waiting for it would take minutes.
running=
trap '[ -z "$running" ] || kill -- "-$running"; exit 130' INT TERM

# step NAME COMMAND… runs a command, shows its output as it comes, and says every half minute
# that it still runs.
step() {
  local name=$1 start=$SECONDS code log
  shift
  if [ -n "${AX_STEPS:-}" ] && ! [[ $name =~ $AX_STEPS ]]; then return 0; fi
  log="$logs/${name// /-}.log"
  echo
  echo "=== $name"
  ( while sleep 30 >/dev/null 2>&1; do echo "    … $name runs for $((SECONDS - start)) s"; done ) &
  beat=$!
  set -m # the step gets a process group of its own
  { "$@" 2>&1 | tee "$log"; } </dev/null &
  running=$!
  set +m
  wait "$running"
  code=$?
  running=
  kill "$beat" 2>/dev/null
  wait "$beat" 2>/dev/null
  beat=
  names+=("$name")
  times+=($((SECONDS - start)))
  if [ "$code" = 0 ]; then
    verdicts+=(pass)
    passed=$((passed + 1))
    echo "--- $name: pass, $((SECONDS - start)) s"
  else
    verdicts+=(FAIL)
    failed=$((failed + 1))
    echo "--- $name: FAIL (exit $code), $((SECONDS - start)) s"
  fi
  return "$code"
}

start_database() {
  if [ -n "${AX_TEST_MYSQL:-}" ]; then
    echo "AX_TEST_MYSQL is set: that server is used"
    return
  fi
  scripts/mariadb.sh start "$database" >/dev/null && echo "MariaDB runs in $database"
}

step "setup" scripts/test-setup.sh
if [ -z "${AX_TEST_MYSQL:-}" ]; then
  database=$(mktemp -d "${TMPDIR:-/tmp}/ax-mariadb.XXXXXX")
fi
AX_STEPS='' step "database" start_database
if [ -n "$database" ] && [ -f "$database/dsn" ]; then
  AX_TEST_MYSQL=$(cat "$database/dsn")
  export AX_TEST_MYSQL
fi

step "tools" make --no-print-directory tools
step "format" make --no-print-directory fmt-check
step "import table" go test -count=1 ./internal/arch
step "vet" make --no-print-directory vet
step "lint" make --no-print-directory lint-go
step "generated files" make --no-print-directory verify
step "go tests" make --no-print-directory test-go
step "nemesis" make --no-print-directory nemesis
step "sdk tests" make --no-print-directory test-sdk
[ -n "${AX_SHORT:-}" ] || step "race detector" make --no-print-directory test-race
if step "console packages" make --no-print-directory web-deps; then
  step "console types" npm --prefix web run --silent typecheck
  step "console lint" npm --prefix web run --silent lint
  step "console tests" npm --prefix web run --silent test -- --passWithNoTests
fi
if step "build" make --no-print-directory build && [ -z "${AX_SHORT:-}" ]; then
  step "browser" scripts/smoke.sh
fi

for i in "${!names[@]}"; do
  if [ "${verdicts[$i]}" = FAIL ]; then
    echo
    echo "=== last lines of ${names[$i]}"
    tail -40 "$logs/${names[$i]// /-}.log"
  fi
done
echo
printf '%-18s %-6s %s\n' step result seconds
for i in "${!names[@]}"; do
  printf '%-18s %-6s %7d\n' "${names[$i]}" "${verdicts[$i]}" "${times[$i]}"
done
printf '%-18s %-6s %7d\n' total '' $((SECONDS - began))
[ -z "${AX_SHORT:-}" ] || echo "AX_SHORT: the race detector and the browser were left out"
[ "$failed" = 0 ]
code=$?
finish
trap - EXIT
echo "$passed passed, $failed failed" | tee "$logs/summary"
exit $code
