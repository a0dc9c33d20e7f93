#!/usr/bin/env bash
# Builds the programs of others that judge waldo's log, into .cache/judges: a witness and a checker of tiles. They come
# from the Go module proxy at these versions, and are not in go.mod. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

judges="filippo.io/torchwood/cmd/litewitness@v0.9.0 github.com/transparency-dev/tessera/cmd/fsck@v1.0.4"
to=$PWD/.cache/judges
[ -f "$to/installed" ] && [ "$(cat "$to/installed")" = "$judges" ] && exit 0
echo "setup: building $judges into $to"
mkdir -p "$to"
for judge in $judges; do
  GOBIN=$to CGO_ENABLED=0 go install "$judge"
done
echo "$judges" >"$to/installed"
