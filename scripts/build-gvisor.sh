#!/bin/bash
# Builds waldo-gvisor and puts it, compressed, where internal/sandbox/gvisor embeds it. It does
# nothing when what is there is newer than what it is made from. GOARCH chooses the processor.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=${GOARCH:-$(go env GOARCH)}
dir=internal/sandbox/gvisor/payload/$arch
out=$dir/waldo-gvisor.gz
if [ -f "$out" ] && [ -f "$dir/waldo-gvisor.sha256" ] && [ -z "${FORCE:-}" ] &&
	[ -z "$(find cmd/waldo-gvisor/*.go internal/sandbox/gvisor/job scripts/build-gvisor.sh go.mod -newer "$out" -type f)" ]; then
	exit 0
fi
mkdir -p "$dir"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
build() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$temp/waldo-gvisor" ./cmd/waldo-gvisor
}
# gVisor's seccomp programs are compiled by a first build of it, which must run here to do so.
programs=cmd/waldo-gvisor/programs/$arch.json
rm -f "$programs"
build
if [ "$arch" = "$(go env GOHOSTARCH)" ] && [ "$(go env GOHOSTOS)" = linux ]; then
	(exec -a waldo-compile "$temp/waldo-gvisor") >"$temp/programs"
	mv "$temp/programs" "$programs"
	build
fi
sha256sum "$temp/waldo-gvisor" | cut -d' ' -f1 >"$temp/sum"
gzip -9 -n -c "$temp/waldo-gvisor" >"$temp/gz"
mv "$temp/gz" "$out"
mv "$temp/sum" "$dir/waldo-gvisor.sha256"
touch "$out"
echo "build-gvisor: $out, $(du -h "$out" | cut -f1)" >&2
