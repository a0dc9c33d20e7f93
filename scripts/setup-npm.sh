#!/usr/bin/env bash
# Installs what scripts/NAME pins, from npm into .cache/NAME: npm, the MCP servers that tests talk to,
# unless another is named. Does nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-npm}
from=scripts/$name to=.cache/$name
if [ -f "$to/installed" ] && cmp -s "$from/package-lock.json" "$to/installed"; then
  exit 0
fi
command -v npm >/dev/null || { echo "setup: npm is not here; tests against real MCP servers and hosts need it" >&2; exit 1; }
echo "setup: installing what $from pins into $to"
mkdir -p "$to"
cp "$from/package.json" "$from/package-lock.json" "$to/"
npm ci --prefix "$(realpath "$to")" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
cp "$from/package-lock.json" "$to/installed"
