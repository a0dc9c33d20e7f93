#!/usr/bin/env bash
# Runs every probe in a sandbox of every driver and in a session of waldo launch, started as root (where this is root) and
# as an ordinary user, and writes what came of it into docs/security/probes.md. It fails when one gets out that is not excused
# in attack/excused.json, when an excuse is for nothing, or when none was tried.
# PROBES='^6' runs the probes whose names match, DRIVERS='gvisor' or 'launch' those alone; then nothing is written.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-probes-XXXXXX")
trap 'chmod -R u+rwX "$work" 2>/dev/null || true; rm -rf "$work"' EXIT
chmod 755 "$work"
cp -r attack/testdata/probes "$work/probes"
cp bin/waldo "$work/waldo"
chmod -R a+rX "$work"
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3)

# one DRIVER NAME UID: all probes, started by that user; their verdicts go to DRIVER-NAME/verdicts.json
one() {
	local home="$work/$1-$2" driver=$1 uid=$3 guest= project
	project=$home
	local start=(exec --isolation "$driver" --quiet --input @input@ --timeout 10s --output-kb 1024 --)
	mkdir -p "$home"
	if [ "$driver" = gvisor ]; then guest=--guest-kernel; fi
	if [ "$driver" = launch ]; then # with the limits that the probes know; its own are for builds
		project=$home/project start=(launch --command env --)
		mkdir "$project"
		cat >"$home/waldo.yaml" <<-'EOF'
			version: 1
			capabilities:
			  launch: {mode: write, approval: none, limits: {memory_mb: 512, pids: 64, files: 64, disk_mb: 256}}
		EOF
	fi
	if [ "$(id -u)" = 0 ]; then chown -R "$uid:$uid" "$home"; fi
	(
		cd "$project"
		export HOME="$home" WALDO_STATE="$home/state" PATH=/usr/local/bin:/usr/bin:/bin
		if [ "$driver" = launch ]; then
			export WALDO_CONFIG="$home/waldo.yaml"
			as "$uid" "$work/waldo" trust "$WALDO_CONFIG"
		fi
		as "$uid" "$python" "$work/probes/runner.py" \
			--lim pids=64 --lim nofile=64 --lim out_kb=1024 --lim inodes=20000 --cwd "$project" $guest \
			${PROBES:+--only "$PROBES"} --json "$home/verdicts.json" \
			--collect "find '$home/state' -path '*/workspaces/*' \( -type f -o -type l \) -exec cat {} + 2>/dev/null" \
			-- "$work/waldo" "${start[@]}" </dev/null
	) >"$home.log" 2>&1 || true
}

# as UID COMMAND...: becomes that user, where that is another, and then the command
as() {
	"$python" -c '
import os, sys
uid = int(sys.argv[1])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.execv(sys.argv[2], sys.argv[2:])' "$@"
}

# control UID: some of the probes without any sandbox. Each must get out, or the table says nothing.
control() {
	local want out
	want='102_ 110_ 112_ 207_ 302_ 309_ 311_ 341_ 342_ 343_ 344_ 345_'
	out=$(cd /tmp && as "$1" "$python" "$work/probes/runner.py" --bare --cwd /tmp --only "^(${want// /|})" -- env </dev/null || true)
	for p in $want; do
		grep -q "^$p.* ESCAPED " <<<"$out" || { echo "probes: control: $p does not get out without a sandbox, so its verdict means nothing" >&2; exit 1; }
	done
	echo "control: $(wc -w <<<"$want") probes without a sandbox all get out"
}

users="user:$(id -u)"
if [ "$(id -u)" = 0 ]; then users="root:0 user:12345"; fi
for u in $users; do control "${u#*:}"; done
for driver in ${DRIVERS:-namespace gvisor confined launch}; do
	began=$(date +%s)
	for u in $users; do one "$driver" "${u%:*}" "${u#*:}" & done
	wait
	for u in $users; do
		home="$work/$driver-${u%:*}"
		echo "== $driver, started by ${u%:*} ($(($(date +%s) - began)) s)"
		grep -v ' CONTAINED ' "$home.log" || true
		[ -s "$home/verdicts.json" ] || { echo "probes: the runner gave no verdicts for $driver" >&2; exit 1; }
	done
done

"$python" scripts/probes.py "${PROBES:-}${DRIVERS:-}" "$work"/*/verdicts.json
