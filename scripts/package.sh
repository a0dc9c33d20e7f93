#!/usr/bin/env bash
# Installs the .deb that it is given on this machine, uses waldo, removes the package, and says what is left of it. For a
# machine to throw away: DEB=FILE make bare calls it on bare Debians. Needs root.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "package: run as root" >&2; exit 2; }

# all the files that have to do with waldo, but for the package itself, its sources and apt's memory
named() {
	find / -xdev \( -path /proc -o -path /sys -o -path /root/waldo -o -path /var/cache -o -path /var/log -o -path /var/lib/apt \
		-o -path /usr/local/go \) -prune -o -iname '*waldo*' -print | grep -v "^$(realpath "$1")\$" | sort || true
}

before=$(named "$1")
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 ca-certificates >/dev/null
dpkg -i "$1"
waldo version --json
[ "$(command -v waldo)" = /usr/bin/waldo ]
[ -e /usr/share/man/man1/waldo.1.gz ] || grep -rq 'path-exclude=/usr/share/man' /etc/dpkg/dpkg.cfg.d
cd /tmp
waldo demo
waldo service install --system --root /tmp/image
dpkg --purge waldo
rm -rf /tmp/image "${XDG_STATE_HOME:-$HOME/.local/state}/waldo" # what waldo was asked to write, and the state of its user
left=$(comm -13 <(echo "$before") <(named "$1"))
[ -z "$left" ] || { echo "package: left behind: $left" >&2; exit 1; }
echo "package: installed, used and removed; nothing is left"
