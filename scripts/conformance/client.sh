#!/usr/bin/env bash
# What the conformance suite runs as a client: waldo, between the suite's own server, whose address is
# the last argument, and the reference client of the official Go SDK, which knows the scenarios. In the
# scenarios of authorization waldo signs in itself, as a person would with waldo login.
set -euo pipefail
url=${*: -1}
dir=$(mktemp -d "${TMPDIR:-/tmp}/waldo-client-XXXXXX")
serving=
finish() {
	[ -z "$serving" ] || { kill "$serving" && wait "$serving"; } 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT
export HOME=$dir XDG_STATE_HOME=$dir/state WALDO_STATE=$dir/state

context() { printf '%s' "${MCP_CONFORMANCE_CONTEXT:-}" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
WALDO_CLIENT_SECRET=$(context client_secret)
export WALDO_CLIENT_SECRET
auth=
case ${MCP_CONFORMANCE_SCENARIO:-} in auth/*)
	oauth="client_metadata: 'https://conformance-test.local/client-metadata.json'" # which the suite knows
	id=$(context client_id)
	[ -z "$id" ] || oauth="client_id: '$id'"
	[ -z "$WALDO_CLIENT_SECRET" ] || oauth="$oauth, client_secret: 'env:WALDO_CLIENT_SECRET'"
	case $MCP_CONFORMANCE_SCENARIO in *client-credentials*) oauth="$oauth, grant: client_credentials" ;; esac
	auth=", auth: {oauth: {$oauth}}"
	;;
esac
cat >"$dir/waldo.yaml" <<EOF
version: 1
servers:
  s: {url: "$url", names: plain, server_requests: {elicitation: [form, url], sampling: true, roots: host}$auth}
capabilities:
  s.*: {transport: mcp, mode: read, approval: none}
redaction: {model: [secrets]}
EOF
waldo() { timeout 20 "$WALDO" --config "$dir/waldo.yaml" "$@"; }

if [ -n "$auth" ]; then
	waldo tools >/dev/null 2>&1 || true # the server says where to sign in
	waldo login s --browser "curl -sL -o /dev/null"
	waldo call s.test-tool || { waldo login s --browser "curl -sL -o /dev/null" && waldo call s.test-tool; }
	exit 0
fi
if [ "${MCP_CONFORMANCE_SCENARIO:-}" = request-metadata ]; then
	waldo tools >/dev/null # the reference client only opens, which waldo answers without asking the server
	exit 0
fi
"$WALDO" --config "$dir/waldo.yaml" serve --listen 127.0.0.1:0 2>"$dir/log" &
serving=$!
for _ in $(seq 300); do
	at=$(sed -n 's/^waldo: listening on //p' "$dir/log")
	[ -z "$at" ] || break
	sleep 0.1
done
timeout 60 "$CLIENT" "${at:?waldo does not listen: $(cat "$dir/log")}"
