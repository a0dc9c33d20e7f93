#!/bin/bash
# Builds waldo-gvisor and puts it, compressed, where internal/sandbox/gvisor embeds it. It does
# nothing when what is there is newer than what it is made from. GOARCH chooses the processor.
# With --programs it first compiles gVisor's own seccomp programs anew, which must be done on a
# machine of that processor, once for each version of gVisor: a test says when. No two such
# compilations give the same bytes, so their result is committed, and the build is reproducible.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${GOARCH:-$(go env GOARCH)}
dir=internal/sandbox/gvisor/payload/$arch
out=$dir/waldo-gvisor.gz
if [ -f "$out" ] && [ -f "$dir/waldo-gvisor.sha256" ] && [ -z "${FORCE:-}${1:-}" ]; then
	# the packages of this module that it is made from
	mapfile -t from < <(CGO_ENABLED=0 GOOS=linux GOARCH=$arch go list -deps -f '{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}' ./cmd/waldo-gvisor)
	newer=$(find "${from[@]}" scripts/build-gvisor.sh go.mod -newer "$out" -type f ! -name '*_test.go')
else
	newer=all
fi
if [ -z "$newer" ]; then
	exit 0
fi
mkdir -p "$dir"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
build() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$temp/waldo-gvisor" ./cmd/waldo-gvisor
}
build
if [ "${1:-}" = --programs ]; then
	(exec -a waldo-compile "$temp/waldo-gvisor") >"$temp/programs"
	mv "$temp/programs" "cmd/waldo-gvisor/programs/$arch.json"
	build
fi
sha256sum "$temp/waldo-gvisor" | cut -d' ' -f1 >"$temp/sum"
gzip -9 -n -c "$temp/waldo-gvisor" >"$temp/gz"
mv "$temp/gz" "$out"
mv "$temp/sum" "$dir/waldo-gvisor.sha256"
touch "$out"
echo "build-gvisor: $out, $(du -h "$out" | cut -f1)" >&2
