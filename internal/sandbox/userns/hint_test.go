//go:build linux

package userns

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestNamespaceHint: one cause is named, the one that the machine shows.
func TestNamespaceHint(t *testing.T) {
	const mounts = "/proc/self/mountinfo"
	const status, filter = "/proc/self/status", "Name:\twaldo\nSeccomp:\t2\nSeccomp_filters:\t1\n"
	for _, r := range []struct {
		why   string
		err   unix.Errno
		files map[string]string
		want  string
	}{
		{"an ordinary machine", unix.EPERM, map[string]string{status: "Seccomp:\t0\n"}, hintAny},
		{"a container", unix.EPERM, map[string]string{status: filter}, hintFilter},
		{"a chroot", unix.EPERM, map[string]string{status: filter, mounts: "25 20 0:22 / /proc rw - proc proc rw\n"}, hintChroot},
		{"a container with a root", unix.EPERM, map[string]string{status: filter, mounts: "25 20 0:22 /x / rw - ext4 d rw\n"},
			hintFilter},
		{"too many is any", unix.ENOSPC, nil, hintMax},
		{"none allowed", unix.EPERM, map[string]string{status: filter, "/proc/sys/user/max_user_namespaces": "0"}, hintMax},
		{"Debian of old", unix.EPERM, map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, hintClone},
		{"Ubuntu, by its setting", unix.EPERM,
			map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, hintUbuntu},
		{"Ubuntu, by its error", unix.EACCES, map[string]string{status: filter}, hintUbuntu},
	} {
		if got := namespaceHint(r.err, func(name string) string { return r.files[name] }); got != r.want {
			t.Errorf("%s: %s", r.why, got)
		}
	}
}
