#!/usr/bin/env bash
# Runs very many scripts, each in a sandbox of its own, and looks whether descriptors, processes, mounts,
# cgroups, memory and disk are where they were. RUNS says how many.
set -euo pipefail
cd "$(dirname "$0")/.."
WALDO_SOAK=${RUNS:-100000} go test -count=1 -timeout 3h -run '^TestSoak$' -v ./internal/sandbox/pool
