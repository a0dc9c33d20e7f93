//go:build linux

package userns

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/landlock"
)

// Hints for the settings with which machines refuse user namespaces.
const (
	hintMax = `no user namespaces are allowed here: sysctl -w user.max_user_namespaces=15000, and the same in ` +
		`/etc/sysctl.d`
	hintClone = `only root may make user namespaces here: sysctl -w kernel.unprivileged_userns_clone=1, and the same in ` +
		`/etc/sysctl.d`
	hintUbuntu = `AppArmor leaves user namespaces without powers here, as Ubuntu 23.10 and later do: sysctl -w ` +
		`kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for waldo with the line "userns,"`
	hintFilter = `this container's filter of system calls refuses user namespaces: in Docker --security-opt ` +
		`seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined, in Kubernetes ` +
		`seccompProfile: {type: Unconfined} and procMount: Unmasked, or hostUsers: false`
	hintChroot = `this is a chroot, in which the kernel makes no user namespaces: enter the folder by pivot_root, as ` +
		`systemd-nspawn and bwrap do`
	hintAny = `the kernel refuses user namespaces here: look at the sysctls user.max_user_namespaces,` +
		` kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns; in Docker use --security-opt ` +
		`seccomp=unconfined`
	hintUsers = `mount /proc where there is none; root of a user namespace needs a range of 2,000 users in it ` +
		`(/etc/subuid, unshare --map-auto), else start waldo as an ordinary user outside`
	hintLess = `; or take the weaker level where that is enough: isolation confined`
)

// Hint says what to do where the kernel refused a user namespace, or something in one, with
// this error. It names one cause as far as the machine tells which it is.
func Hint(err unix.Errno) string {
	hint := namespaceHint(err, func(name string) string {
		b, _ := os.ReadFile(name)
		return strings.TrimSpace(string(b))
	})
	if landlock.ABI() < landlock.Scopes { // without scopes the weaker level is not available
		return hint
	}
	return hint + hintLess
}

func namespaceHint(err unix.Errno, read func(name string) string) string {
	filtered := false
	for line := range strings.Lines(read("/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		filtered = filtered || name == "Seccomp" && strings.TrimSpace(value) == "2"
	}
	switch {
	case err == unix.ENOSPC, read("/proc/sys/user/max_user_namespaces") == "0":
		return hintMax
	case err == unix.EPERM && chrooted(read("/proc/self/mountinfo")):
		return hintChroot
	case read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return hintClone
	case err == unix.EACCES, read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return hintUbuntu
	case filtered:
		return hintFilter
	}
	return hintAny
}

// chrooted reports by the table of mounts whether a process is in a chroot: its root is no mount that it can see. The
// root of a namespace always is. A chroot whose folder is itself a mount is not recognised.
func chrooted(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "/" {
			return false
		}
	}
	return mountinfo != ""
}
