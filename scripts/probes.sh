#!/usr/bin/env bash
# Runs every probe in a box, started as root (where this is root) and as an ordinary user, and
# writes what came of it into SECURITY.md. It fails when one gets out, or when none was tried.
# PROBES='^6' runs the probes whose names match, and writes nothing.
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

# one NAME UID [--skip RE]: all probes, started by that user; their verdicts go to NAME/verdicts.json
one() {
	local home="$work/$1" uid=$2
	shift 2
	mkdir -p "$home"
	if [ "$(id -u)" = 0 ]; then chown "$uid:$uid" "$home"; fi
	(
		cd "$home"
		export HOME="$home" WALDO_STATE="$home/state" PATH=/usr/local/bin:/usr/bin:/bin
		"$python" -c '
import os, sys
uid = int(sys.argv[1])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.execv(sys.argv[2], sys.argv[2:])' "$uid" "$python" "$work/probes/runner.py" \
			--lim pids=64 --lim nofile=64 --lim out_kb=1024 --lim inodes=20000 --cwd "$home" \
			${PROBES:+--only "$PROBES"} --json "$home/verdicts.json" \
			--collect "find '$home/state' -path '*/workspaces/*' \( -type f -o -type l \) -exec cat {} + 2>/dev/null" \
			-- "$work/waldo" exec --quiet --timeout 10s --output-kb 1024 -- </dev/null
	) | tee "$home/log" | grep -v ' CONTAINED ' || true
	[ -s "$home/verdicts.json" ] || { echo "probes: the runner gave no verdicts for $home" >&2; exit 1; }
}

if [ "$(id -u)" = 0 ]; then
	echo "== started as root"
	one root 0
	echo "== started as an ordinary user"
	one user 12345
else
	echo "== started as an ordinary user"
	one user "$(id -u)"
fi

"$python" scripts/probes.py "${PROBES:-}" "$work"/*/verdicts.json
