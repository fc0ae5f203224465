#!/usr/bin/env bash
# bench-diff.sh BASE PATTERN: runs the benchmarks of a commit and of the work tree in
# turn, ten rounds each, and prints benchstat's comparison. Quote the ratios, not the times.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$1 pattern=$2
tree=$(mktemp -d "${TMPDIR:-/tmp}/ax-bench.XXXXXX")
trap 'git worktree remove --force "$tree/base"; rm -rf "$tree"' EXIT
git worktree add --detach -q "$tree/base" "$base"
for round in $(seq 10); do
  echo "round $round of 10"
  (cd "$tree/base" && go test -run '^$' -bench "$pattern" -benchmem -benchtime 200ms ./... >>"$tree/old.txt")
  go test -run '^$' -bench "$pattern" -benchmem -benchtime 200ms ./... >>"$tree/new.txt"
done
bin/benchstat "base=$tree/old.txt" "here=$tree/new.txt"
