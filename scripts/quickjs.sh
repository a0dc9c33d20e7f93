#!/bin/bash
# Fetches QuickJS as WebAssembly (npm quickjs-wasi) and puts it where internal/sandbox/engine/quickjs embeds it. The digest
# is pinned: another file is refused. The module is committed, so no build needs this.
set -euo pipefail
cd "$(dirname "$0")/.."
version=3.6.2
digest=d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9
dir=internal/sandbox/engine/quickjs
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
(cd "$temp" && npm pack --silent "quickjs-wasi@$version" >/dev/null && tar xzf "quickjs-wasi-$version.tgz")
echo "$digest  $temp/package/quickjs.wasm" | sha256sum --check --quiet
cp "$temp/package/quickjs.wasm" "$dir/quickjs.wasm"
cp "$temp/package/LICENSE" "$dir/LICENSE.quickjs-wasi"
echo "quickjs.wasm $version is in $dir"
