#!/usr/bin/env bash
# Installs what tests check the types of generated code with: TypeScript from npm, and Debian's mypy as it is in its
# packages, into .cache/types. Does nothing when it is there already. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup-npm.sh types
to=.cache/types/mypy
[ -d "$to" ] && exit 0
command -v apt-get >/dev/null || { echo "setup: mypy is installed on Debian and Ubuntu alone" >&2; exit 0; }
new=$(mktemp -d .cache/types/new.XXXXXX)
trap 'rm -rf "$new"' EXIT
echo "setup: unpacking mypy into $to"
(cd "$new" && apt-get download -qq python3-mypy python3-mypy-extensions python3-typing-extensions python3-typeshed >/dev/null 2>&1)
for deb in "$new"/*.deb; do
  dpkg -x "$deb" "$new/root"
done
mv "$new/root" "$to"
