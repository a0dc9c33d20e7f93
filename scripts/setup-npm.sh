#!/usr/bin/env bash
# Installs the real MCP servers that tests talk to, at the versions pinned in scripts/npm, into
# .cache/npm. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

to=.cache/npm
if [ -f "$to/installed" ] && cmp -s scripts/npm/package-lock.json "$to/installed"; then
  exit 0
fi
command -v npm >/dev/null || { echo "setup: npm is not here; tests against real MCP servers need it" >&2; exit 1; }
echo "setup: installing MCP servers for the tests into $to"
mkdir -p "$to"
cp scripts/npm/package.json scripts/npm/package-lock.json "$to/"
npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
cp scripts/npm/package-lock.json "$to/installed"
