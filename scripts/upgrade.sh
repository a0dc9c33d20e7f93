#!/usr/bin/env bash
# Clients write to an earlier waldo while this one takes its state directory over: no acknowledged write is lost, none is
# done twice. FROM is the commit of the earlier one; without it, the commit that dated the newest version of CHANGELOG.md.
set -euo pipefail
cd "$(dirname "$0")/.."
heading=$(grep -m 1 -oE '^## [0-9]+\.[0-9]+\.[0-9]+, [0-9-]+$' CHANGELOG.md)
from=${FROM:-$(git log --format=%H -S"$heading" -- CHANGELOG.md | tail -1)}
work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-upgrade-XXXXXX")
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0
git archive "$from" | tar -x -C "$work" --one-top-level=source
(cd "$work/source" && go build -trimpath -o "$work/earlier" ./cmd/waldo)
go build -trimpath -o "$work/later" ./cmd/waldo
echo "upgrade: from ${from:0:12} to $(git rev-parse --short=12 HEAD)"
WALDO_UPGRADE_FROM=$work/earlier WALDO_UPGRADE_TO=$work/later \
	go test ./internal/feature/reliability -run 'TestUpgrade$' -count=1 -v -timeout 15m
echo "upgrade: no acknowledged write was lost, and none was done twice"
