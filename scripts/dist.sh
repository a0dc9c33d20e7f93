#!/usr/bin/env bash
# Judges what make release made in DIR (default: dist) by the tools of others: rpm installs the .rpm into a root and takes
# it out again, skopeo and umoci read the image, and runc starts it. Needs root; apt-get install rpm skopeo umoci runc.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "dist: run as root: rpm and runc change roots" >&2; exit 2; }
dist=$(realpath "${1:-dist}")
work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-dist-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "dist: $*" >&2; exit 1; }
fits=$(uname -m)

package=$(echo "$dist"/waldo-*."$fits".rpm)
rpm -K "$package" | grep -q 'digests OK' || fail "$package: rpm does not find its digests right"
root=$work/root
mkdir -p "$root/bin" "$root/proc" "$root/dev"
cp "$(command -v busybox)" "$root/bin/sh" # for the script before the removal: apt-get install busybox-static
mount -t proc proc "$root/proc"
trap 'umount "$root/proc"; rm -rf "$work"' EXIT
rpm --root "$root" --initdb
rpm --root "$root" -i --nodeps "$package"
rpm --root "$root" -V waldo || fail "the installed files differ from the package"
chroot "$root" /usr/bin/waldo --version
[ -e "$root/usr/share/zsh/site-functions/_waldo" ] || fail "no completions where the zsh of rpm's distributions looks"
chroot "$root" /usr/bin/waldo service install --system --root /. >/dev/null # the files alone: no systemd runs there
[ -e "$root/etc/systemd/system/waldo.service" ] || fail "no unit was written"
rpm --root "$root" -e waldo
left=$(cd "$root" && find . -xdev -path ./proc -prune -o -iname '*waldo*' -print | sort | tr '\n' ' ')
[ "$left" = "./etc/waldo ./etc/waldo/waldo.yaml " ] || fail "the .rpm left: $left"
echo "dist: the .rpm: installed, verified, used, removed; the configuration stays and nothing else"

mkdir "$work/image" && tar -C "$work/image" -xf "$(echo "$dist"/waldo_*_oci.tar)"
for tag in $(umoci ls --layout "$work/image"); do
	skopeo inspect "oci:$work/image:$tag" | grep -q '"Architecture"' || fail "skopeo does not read $tag"
	umoci unpack --image "$work/image:$tag" "$work/bundle" >/dev/null
	bundle() { # bundle ARGUMENT...: what the image starts; the volume is that of the image itself
		python3 - "$work/bundle/config.json" "$@" <<-'EOF'
			import json, sys
			c = json.load(open(sys.argv[1]))
			c["process"].update(args=["/usr/bin/waldo"] + sys.argv[2:], terminal=False)
			c["mounts"] = [m for m in c["mounts"] if m["destination"] != "/var/lib/waldo"]
			json.dump(c, open(sys.argv[1], "w"))
		EOF
	}
	bundle --version
	runc --root "$work/runc" run -b "$work/bundle" "dist-$$" </dev/null | grep '^waldo ' || fail "$tag does not start"
	said=$(chroot "$work/bundle/rootfs" /usr/bin/waldo token ci 2>&1)
	printf 'version: 1\n%s\n' "$(sed -n 's|^gateway: {|gateway: {url: "https://waldo.example.com", |p' <<<"$said")" \
		>"$work/bundle/rootfs/etc/waldo/waldo.yaml"
	bundle --config /etc/waldo/waldo.yaml serve --listen 0.0.0.0:7676
	runc --root "$work/runc" run -d -b "$work/bundle" "dist-$$" </dev/null >"$work/said" 2>&1 || fail "$tag: $(cat "$work/said")"
	pid=$(runc --root "$work/runc" state "dist-$$" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
	for _ in $(seq 50); do
		answer=$(nsenter -t "$pid" -n curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:7676/readyz) && break || sleep 0.2
	done
	owner=$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")
	runc --root "$work/runc" kill "dist-$$" TERM
	for _ in $(seq 50); do [ -e "/proc/$pid" ] || break; sleep 0.2; done
	runc --root "$work/runc" delete -f "dist-$$"
	[ "$answer $owner" = "200 65532" ] || fail "$tag: /readyz answered $answer, as user $owner: $(cat "$work/said")"
	rm -rf "$work/bundle"
	echo "dist: the image $tag: read by skopeo, started by runc as user $owner, and it serves"
done
