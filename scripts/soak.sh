#!/usr/bin/env bash
# Runs very many scripts, each in a sandbox of its own, and looks whether descriptors, processes, mounts,
# cgroups, memory and disk are where they were. RUNS says how many. HOSTILE=1h drives a gateway for that long with a
# hostile principal beside an honest one instead.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${HOSTILE:-}" ]; then
  go build -o bin/waldo ./cmd/waldo
  exec go run ./tools/mcpbench -hostile "$HOSTILE" bin/waldo
fi
WALDO_SOAK=${RUNS:-100000} go test -count=1 -timeout 3h -run '^TestSoak$' -v ./internal/sandbox/pool
