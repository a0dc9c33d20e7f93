#!/usr/bin/env bash
# Runs the two commands of README.md, make demo and make test, on machines that have nothing but make, git and Go:
# SUITES (default: Debian 12, Debian 13 and Ubuntu 24.04), made by debootstrap. Each runs them first as root, which
# installs packages, then as an ordinary user in a clone of its own. No clone has ../shared beside it.
# It enters a root by pivot_root with its own mounts and processes, and shares the network. Needs root and apt-get.
# What it makes is kept in .cache/bare (some 6 GB for each suite); FRESH=1 makes it anew. USERS="root tester" are the
# users, COMMANDS="make demo; make test" is what they run. DEB=FILE tries a package of make release in their place.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "bare: run as root: debootstrap makes the machines" >&2; exit 2; }

work=$PWD/.cache/bare
mkdir -p "$work"
go=$(go env GOROOT)
modules=$(go env GOMODCACHE)
certificates=/etc/ssl/certs/ca-certificates.crt
commands=${COMMANDS:-make demo; make test}
[ -z "${DEB:-}" ] || { commands="scripts/package.sh /var/cache/waldo.deb"; USERS=root; }

# make SUITE: makes its root, or says why there is none.
make_root() {
	local suite=$1 root=$work/$1 mirror=http://deb.debian.org/debian script=() components=main
	if [ "$suite" = noble ]; then
		mirror=http://archive.ubuntu.com/ubuntu components=main,universe
		script=(/usr/share/debootstrap/scripts/gutsy) # what each Ubuntu is made by
	fi
	[ -z "${FRESH:-}" ] || rm -rf "$root" "$root.made"
	[ ! -e "$root.made" ] || return 0
	command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
	if ! curl -sfI -m 20 -o /dev/null "$mirror/dists/$suite/Release"; then
		echo "bare: $suite: NOT RUN: $mirror is not reachable from here"
		return 1
	fi
	local keys=()
	if [ "$suite" = noble ]; then
		keys=(--keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg)
		if [ ! -e "${keys[0]#*=}" ]; then
			echo "bare: $suite: Ubuntu's keys are not here: its packages are taken unsigned, for this root alone"
			keys=(--no-check-gpg)
		fi
	fi
	echo "bare: making $suite"
	rm -rf "$root"
	debootstrap "${keys[@]}" --variant=minbase --components=$components --include=make,git,ca-certificates \
		"$suite" "$root" "$mirror" "${script[@]}" >"$work/$suite.debootstrap" 2>&1 ||
		{ tail -5 "$work/$suite.debootstrap"; echo "bare: $suite: NOT RUN: debootstrap failed"; return 1; }
	[ "${keys[0]:-}" != --no-check-gpg ] || sed -i 's/^deb /deb [trusted=yes] /' "$root/etc/apt/sources.list"
	chroot "$root" useradd -m -s /bin/bash tester
	echo bare >"$root/etc/hostname"
	touch "$root.made"
}

# enter SUITE USER: runs the commands in the root, in a new clone of this commit.
enter() {
	local root=$work/$1 user=$2 home clone
	home=$(chroot "$root" sh -c "echo ~$user")
	clone=$home/waldo
	rm -rf "${root:?}$clone"
	git clone -q --no-hardlinks . "$root$clone"
	[ -z "${DEB:-}" ] || cp "$DEB" "$root/var/cache/waldo.deb"
	cp -L /etc/resolv.conf "$root/etc/resolv.conf"
	cp "$certificates" "$root$certificates" # a machine behind a proxy has authorities of its own
	mkdir -p "$root/var/cache/go-modules" "$root/var/cache/go-build"
	if ! cmp -s "$go/VERSION" "$root/usr/local/go/VERSION"; then # a mount below /usr would change how it is shown to sandboxes
		rm -rf "$root/usr/local/go" && cp -a "$go" "$root/usr/local/go"
	fi
	chroot "$root" chown -R "$user": "$clone" /var/cache/go-build
	unshare --mount --pid --ipc --uts --fork --kill-child bash -euo pipefail -c '
		root=$1 modules=$2 user=$3 clone=$4 commands=$5
		mount --make-rprivate /
		mount --bind "$root" "$root" && cd "$root"
		mount -t proc proc proc
		mount --rbind /sys sys
		mount -t tmpfs -o mode=755 dev dev
		for n in null zero full random urandom tty; do touch dev/$n; mount --bind /dev/$n dev/$n; done
		mkdir dev/pts dev/shm
		mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
		mount -t tmpfs -o mode=1777 shm dev/shm
		ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
		for n in 0 1 2; do ln -s /proc/self/fd/$n dev/std$(echo in out err | cut -d" " -f$((n + 1))); done
		mount -t tmpfs -o mode=1777 tmp tmp
		mount -t tmpfs -o mode=755 run run
		mkdir -p "$modules/cache/download"
		mount --bind -o ro "$modules/cache/download" var/cache/go-modules
		hostname bare
		mkdir -p mnt && pivot_root . mnt && cd / && umount -l /mnt
		exec setpriv --reuid "$user" --regid "$user" --init-groups env -i HOME="$(dirname "$clone")" USER="$user" \
			LANG=C.UTF-8 TERM=dumb CI="${CI:-}" PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			GOPROXY=file:///var/cache/go-modules,"$(go env GOPROXY)" GOFLAGS="${BARE_GOFLAGS:-}" GOCACHE=/var/cache/go-build \
			NODE_EXTRA_CA_CERTS="$6" ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
			bash -ec "cd $clone; $commands"
	' enter "$root" "$modules" "$user" "$clone" "$commands" "$certificates"
}

bad=0
for suite in ${SUITES:-bookworm trixie noble}; do
	make_root "$suite" || { bad=1; continue; }
	for user in ${USERS:-root tester}; do
		log=$work/$suite.$user.log
		begun=$SECONDS
		echo "bare: $suite, $user: $commands, into ${log#"$PWD/"}"
		if enter "$suite" "$user" >"$log" 2>&1; then
			echo "bare: $suite, $user: passed in $((SECONDS - begun)) s"
		else
			bad=1
			grep -aE '^(FAIL|--- FAIL|panic:|make: )' "$log" | head -40 || true
			echo "bare: $suite, $user: FAILED after $((SECONDS - begun)) s"
		fi
	done
done
[ "$bad" = 0 ] && echo "bare: both commands work on each machine" || { echo "bare: not everything works" >&2; exit 1; }
