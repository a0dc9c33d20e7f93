#!/usr/bin/env bash
# Measures sandboxes and writes the tables into BENCHMARKS.md, between its markers. Everything is compared
# with the bare interpreter in the same minute: on a busy machine only the ratio means something.
# As root where there is the cpu controller of cgroup version 1, the measuring has a group of its
# own with a large share, so that other work does not count. Runners that Debian packages (bubblewrap,
# runc, firejail) are measured beside it where they are installed; WALDO_BENCH_INSTALL=1 installs them.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-200}
work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-bench-XXXXXX")
group=
cleanup() {
	rm -rf "$work"
	[ -z "$group" ] || rmdir "$group" 2>/dev/null || true
}
trap cleanup EXIT

if [ "${WALDO_BENCH_INSTALL:-}" = 1 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get install -y -q bubblewrap runc firejail >/dev/null || echo "bench: not all could be installed" >&2
fi

if [ "$(id -u)" = 0 ] && [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then
	group=/sys/fs/cgroup/cpu/waldo-bench-$$
	mkdir -p "$group"
	echo 200000 >"$group/cpu.shares"
fi

# fair COMMAND...: in a group of its own.
fair() {
	if [ -n "$group" ]; then
		bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' fair "$group" "$@"
	else
		"$@"
	fi
}

go test -c -o "$work/pool.test" ./internal/sandbox/pool
fair "$work/pool.test" -test.run '^$' -test.bench 'Warm|Unsandboxed|Empty|Cold|Overhead|Others|Runc' -test.benchtime "${runs}x" | tee "$work/out"
fair "$work/pool.test" -test.run '^$' -test.bench 'Sustained' -test.benchtime 1000x | tee -a "$work/out"
fair "$work/pool.test" -test.run '^$' -test.bench 'Memory' -test.benchtime 1x | tee -a "$work/out"
go test -c -o "$work/gvisor.test" ./internal/sandbox/gvisor
(cd internal/sandbox/gvisor && fair "$work/gvisor.test" -test.run '^$' -test.bench 'Warm' -test.benchtime "${SERVED:-30}x") | tee -a "$work/out"
go test -c -o "$work/runner.test" ./internal/executor/runner
(cd internal/executor/runner && fair "$work/runner.test" -test.run '^$' -test.bench 'Served' -test.benchtime "${SERVED:-30}x") | tee -a "$work/out"
go test -c -o "$work/engine.test" ./internal/sandbox/engine
(cd internal/sandbox/engine && fair "$work/engine.test" -test.run '^$' -test.bench 'WarmEngine' -test.benchtime "${runs}x") | tee -a "$work/out"
go test -c -o "$work/program.test" ./internal/sandbox/engine/program
(cd internal/sandbox/engine/program && fair "$work/program.test" -test.run '^$' -test.bench 'Suspend|Resume' -test.benchtime "${runs}x") | tee -a "$work/out"
go test -c -o "$work/programs.test" ./internal/storage/programs
(cd internal/storage/programs && fair "$work/programs.test" -test.run '^$' -test.bench 'TenThousand' -test.benchtime 1x) | tee -a "$work/out"
go test -c -o "$work/worker.test" ./internal/feature/worker
(cd internal/feature/worker && fair "$work/worker.test" -test.run '^$' -test.bench 'Dispatch' -test.benchtime "${runs}x") | tee -a "$work/out"
go test -c -o "$work/egress.test" ./internal/network/egress
(cd internal/network/egress && fair "$work/egress.test" -test.run '^$' -test.bench 'Throughput|Connect' -test.benchtime 40x) | tee -a "$work/out"
(cd internal/network/egress && fair "$work/egress.test" -test.run '^$' -test.bench 'Inside' -test.benchtime 2000x) | tee -a "$work/out"
(cd internal/network/egress && fair "$work/egress.test" -test.run '^$' -test.bench 'Hundred' -test.benchtime 1x) | tee -a "$work/out"
go test -c -o "$work/catalog.test" ./internal/frontend/mcpserver/catalog
(cd internal/frontend/mcpserver/catalog && fair "$work/catalog.test" -test.run '^$' -test.bench 'Search10000' -test.benchtime 10000x) | tee -a "$work/out"
(cd internal/frontend/mcpserver/catalog && fair "$work/catalog.test" -test.run '^$' -test.bench 'FirstList|Storm' -test.benchtime 3x) | tee -a "$work/out"
go test -c -o "$work/cmd.test" ./cmd/waldo
(cd cmd/waldo && fair "$work/cmd.test" -test.run '^$' -test.bench 'BenchmarkServers' -test.benchtime 3x) | tee -a "$work/out"
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3)
CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags "-s -w" -o "$work/waldo" ./cmd/waldo # as make build does
go build -o "$work/mcpbench" ./tools/mcpbench
fair "$work/mcpbench" -n "${CALLS:-4000}" -update BENCHMARKS.md "$work/waldo"
go run ./tools/codetokens -waldo "$work/waldo" -write BENCHMARKS.md
folder= # other gateways, from npm; without npm the table has waldo's rows alone
if scripts/setup-npm.sh npm-peers; then folder=.cache/npm-peers; fi
fair "$work/mcpbench" -peers -folder "$folder" -n "${PEER_CALLS:-2000}" -update BENCHMARKS.md "$work/waldo"
"$python" scripts/bench.py "$work/out"
