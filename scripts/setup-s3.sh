#!/usr/bin/env bash
# Builds versitygw, an S3 server, into .cache/s3 from the Go module proxy at this version: three minutes of processor. It
# judges the bucket of the log; see make s3. Does nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

server="github.com/versity/versitygw/cmd/versitygw@v1.8.0"
to=$PWD/.cache/s3
[ -f "$to/installed" ] && [ "$(cat "$to/installed")" = "$server" ] && [ -x "$to/versitygw" ] && exit 0
echo "setup: building $server into $to"
mkdir -p "$to"
GOBIN=$to CGO_ENABLED=0 go install "$server"
echo "$server" >"$to/installed"
