#!/usr/bin/env bash
# gofmt, go vet, staticcheck and govulncheck. A tool that cannot be had is named, not passed over in silence.
set -uo pipefail
cd "$(dirname "$0")/.."
bad=0
unformatted=$(git ls-files '*.go' | xargs -r gofmt -l)
[ -z "$unformatted" ] || { echo "gofmt would change:"; echo "$unformatted"; bad=1; }
go vet ./... || bad=1
GOOS=darwin go vet ./cmd/waldo || { echo "does not compile for darwin"; bad=1; }
GOOS=windows go vet ./cmd/waldo || { echo "does not compile for windows"; bad=1; }
GOARCH=arm64 go vet ./cmd/waldo || { echo "does not compile for linux/arm64"; bad=1; }
go test -timeout 30m -tags lint . -run TestEachFeatureCanGo >/dev/null || { echo "the tree needs a feature: go test -tags lint . -run TestEachFeatureCanGo"; bad=1; }
tools="$PWD/.cache/tools"
mkdir -p "$tools"
if [ -x "$tools/staticcheck" ] || GOBIN="$tools" go install honnef.co/go/tools/cmd/staticcheck@v0.8.2; then
  "$tools/staticcheck" ./... || bad=1
else
  echo "staticcheck could not be installed"; bad=1
fi
vuln="was not run: it could not be installed"
if [ -x "$tools/govulncheck" ] || GOBIN="$tools" go install golang.org/x/vuln/cmd/govulncheck@v1.9.0; then
  out=$(timeout 120 "$tools/govulncheck" ./cmd/waldo 2>&1)
  case $? in
    0) vuln="found nothing" ;;
    3) echo "$out"; vuln="found vulnerabilities"; bad=1 ;; # what its documentation says of this status
    124) vuln="was not finished in 120 s" ;;
    *) if grep -qE 'dial tcp|no such host|fetching vulnerabilities|Forbidden' <<<"$out"; then
         vuln="was not run: its database is not reachable from here"
       else echo "$out"; vuln="failed"; bad=1; fi ;;
  esac
fi
[ "$bad" = 0 ] && echo "lint: sound (govulncheck $vuln)" || { echo "lint: problems found (govulncheck $vuln)"; exit 1; }
