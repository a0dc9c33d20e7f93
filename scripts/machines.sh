#!/usr/bin/env bash
# Runs waldo on machines unlike this one: Debian with systemd, cgroups of version 2 alone and a real Docker, with
# each of KERNELS (Debian's packages of them), in QEMU. Where /dev/kvm takes no ordinary kernel, QEMU emulates the
# processor, which is ten times slower (KVM=1 tries the other way). Needs root and apt-get; what it makes is kept in
# .cache/machines (4 GB). LOOKS are the scripts of scripts/machines that look there. DEB=FILE is a package of make
# release, which service.sh then installs and removes.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "machines: run as root: debootstrap makes the machine's root" >&2; exit 2; }

work=$PWD/.cache/machines
root=$work/root
mkdir -p "$work"
apt-get install -y -q --no-install-recommends qemu-system-x86 debootstrap busybox-static cpio kmod e2fsprogs >/dev/null

if [ ! -e "$work/root.made" ]; then
	echo "machines: making a Debian, some minutes"
	rm -rf "$root"
	debootstrap --variant=minbase --include=systemd-sysv,dbus,libpam-systemd,dbus-user-session,docker.io,python3,nodejs,procps,kmod,apparmor,login \
		bookworm "$root" >"$work/debootstrap.log"
	chroot "$root" useradd -m -s /bin/bash tester
	chroot "$root" systemctl -q disable docker docker.socket containerd
	cat >"$root/etc/systemd/system/machines.service" <<-'EOF'
		[Service]
		Type=oneshot
		TimeoutSec=infinity
		ExecStart=/bin/bash -c 'modprobe -a 9p 9pnet_virtio; mkdir -p /share; mount -t 9p -o trans=virtio,version=9p2000.L share /share; bash /share/inside.sh >/share/out 2>&1; sync; systemctl poweroff -f'
	EOF
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
	ln -s ../machines.service "$root/etc/systemd/system/multi-user.target.wants/"
	touch "$work/root.made"
fi

# kernel PACKAGE: unpacks what the package depends on, with a first root that can read the disk; says its version.
kernel() {
	local package version dir=$work/$1
	if [ ! -e "$dir/version" ]; then
		package=$(apt-cache depends "$1" | awk '/Depends: linux-image/ {print $2; exit}')
		rm -rf "$dir" && mkdir -p "$dir"
		(cd "$dir" && apt-get download -q "$package" 2>/dev/null >&2 && dpkg -x ./*.deb . && rm ./*.deb)
		version=${package#linux-image-}
		depmod -b "$dir" "$version"
		mkdir -p "$root/lib/modules" && cp -a "$dir/lib/modules/$version" "$root/lib/modules/"
		mkdir -p "$dir/first/bin" "$dir/first/m" "$dir/first/proc" "$dir/first/dev" "$dir/first/mnt"
		cp "$(command -v busybox)" "$dir/first/bin/"
		for module in virtio_pci virtio_blk crc32c_generic ext4; do
			modprobe -d "$dir" -S "$version" --show-depends "$module" | awk '/^insmod/ {print $2}'
		done | awk '!seen[$0]++' | while read -r file; do
			case $file in *.xz) busybox xz -dc "$file" >"$dir/first/m/$(basename "$file" .xz)" ;; *) cp "$file" "$dir/first/m/" ;; esac
			basename "$file" .xz >>"$dir/first/order"
		done
		cat >"$dir/first/init" <<-'EOF'
			#!/bin/busybox sh
			/bin/busybox mount -t devtmpfs dev /dev
			for m in $(/bin/busybox cat /order); do /bin/busybox insmod /m/$m; done
			while [ ! -b /dev/vda ]; do /bin/busybox sleep 0.1; done
			/bin/busybox mount -t ext4 /dev/vda /mnt
			exec /bin/busybox switch_root /mnt /lib/systemd/systemd
		EOF
		chmod +x "$dir/first/init"
		(cd "$dir/first" && find . | cpio -o -H newc 2>/dev/null | gzip -1 >../first.gz)
		rm -f "$work/disk"
		echo "$version" >"$dir/version"
	fi
	cat "$dir/version"
}

kernels=${KERNELS:-linux-image-amd64 linux-image-6.12-amd64}
for k in $kernels; do kernel "$k" >/dev/null; done
if [ ! -e "$work/disk" ]; then
	truncate -s 8G "$work/disk"
	mke2fs -q -t ext4 -d "$root" "$work/disk"
fi

share=$work/share
accel=(-accel 'tcg,thread=multi' -cpu max)
[ -z "${KVM:-}" ] || accel=(-enable-kvm -cpu host)
bad=0
for k in $kernels; do
	version=$(kernel "$k")
	rm -rf "$share" && mkdir -p "$share"
	cp bin/waldo scripts/machines/* "$share/"
	echo "${LOOKS:-sandboxes service}" >"$share/looks"
	[ -z "${DEB:-}" ] || cp "$DEB" "$share/waldo.deb"
	echo "machines: Debian 12, kernel $version, some ten minutes where it is emulated"
	timeout "${MINUTES:-40}m" nice -n 5 qemu-system-x86_64 "${accel[@]}" -smp 2 -m 4096 -nographic -no-reboot -snapshot -net none \
		-kernel "$work/$k/boot/vmlinuz-$version" -initrd "$work/$k/first.gz" -append "console=ttyS0 quiet systemd.show_status=0" \
		-drive file="$work/disk",if=virtio,format=raw,cache=unsafe -virtfs local,path="$share",mount_tag=share,security_model=none \
		</dev/null >"$work/console" 2>&1 || true
	cp "$share/out" "$work/out-$version" 2>/dev/null || true
	cat "$share/out" || tail -5 "$work/console"
	tail -n 1 "$share/out" | grep -q '^all seen$' && ! grep -q '^FAIL' "$share/out" || bad=1
done
[ "$bad" = 0 ] && echo "machines: everything as expected" || { echo "machines: not everything as expected" >&2; exit 1; }
