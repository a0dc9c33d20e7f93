#!/usr/bin/env bash
# Real agent hosts and real MCP servers through waldo, in a network name space that has no way out:
# each host is set up by waldo install and makes a call that a scripted model asks for, over stdio and
# over HTTP; each server answers from its own sandbox.
set -euo pipefail
cd "$(dirname "$0")/.."

begun=$SECONDS
scripts/setup-npm.sh npm
scripts/setup-npm.sh npm-hosts
scripts/setup-chromium.sh
go vet -tags hosts ./internal/feature/hosts/real
go test -c -tags hosts -o .cache/hosts.test ./internal/feature/hosts/real
export WALDO_BIN=$PWD/bin/waldo WALDO_CACHE=$PWD/.cache WALDO_OUTSIDE=$$
alone=(unshare --net --mount)
[ "$(id -u)" = 0 ] || alone=(unshare --net --mount --map-root-user)
ready=$SECONDS
cd .cache
"${alone[@]}" ./hosts.test -test.v -test.timeout 30m -test.run "${RUN:-.}" | tee hosts.log | grep -E '^ +[a-z]+_test.go|^ *--- FAIL|^FAIL|^ +[a-z]' || true
! grep -q -- '--- FAIL' hosts.log && grep -qx PASS hosts.log || { echo "hosts: something failed; the whole is in .cache/hosts.log"; exit 1; }
cd ..
scripts/azure.sh
cd .cache
echo "hosts: $(grep -c -- '--- PASS: .*/' hosts.log) of $(grep -c '=== RUN .*/' hosts.log) real hosts and servers answered through waldo, in $((SECONDS - ready)) s and $((ready - begun)) s of set-up"
