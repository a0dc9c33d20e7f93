#!/usr/bin/env bash
# Builds the programs of others that judge waldo, into .cache/judges: a witness and a checker of tiles for its log, and the
# A2A client, server and message types of a2a-go. They come from the Go module proxy at these versions, and are not in go.mod; those of
# scripts/go-a2a are pinned there. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

judges="filippo.io/torchwood/cmd/litewitness@v0.9.0 github.com/transparency-dev/tessera/cmd/fsck@v1.0.4"
to=$PWD/.cache/judges
[ -f "$to/installed" ] && [ "$(cat "$to/installed")" = "$judges" ] && [ -x "$to/a2a" ] && [ -x "$to/a2a-judge" ] && exit 0
echo "setup: building $judges into $to"
mkdir -p "$to"
for judge in $judges; do
  GOBIN=$to CGO_ENABLED=0 go install "$judge"
done
(cd scripts/go-a2a && CGO_ENABLED=0 go build -o "$to/a2a" github.com/a2aproject/a2a-go/v2/cmd/a2a && CGO_ENABLED=0 go build -o "$to/a2a-judge" .)
echo "$judges" >"$to/installed"
