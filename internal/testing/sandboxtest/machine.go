//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Machines are the machines that Behind can simulate, with the calls that each refuses and the errors.
var Machines = map[string]struct {
	Why     string
	calls   map[uintptr]unix.Errno
	newUser unix.Errno // to a new user namespace; 0: it may be made
	any     unix.Errno // to any new namespace
	caps    bool       // only those of Docker's are left
	masked  bool       // /proc has covers and read-only places
	groups  bool       // cgroups are read-only
}{
	"docker": {Why: "docker run with nothing else said: its default filter, its capabilities, its covers over /proc",
		calls: all(unix.EPERM, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT,
			unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
			unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_BPF,
			unix.SYS_PERF_EVENT_OPEN,
			unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
			unix.SYS_REQUEST_KEY,
			unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SETHOSTNAME,
			unix.SYS_SETDOMAINNAME, unix.SYS_SWAPON, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_FANOTIFY_INIT,
			unix.SYS_LOOKUP_DCOOKIE), newUser: unix.EPERM, any: unix.EPERM, caps: true, masked: true, groups: true},
	"unconfined": {
		Why:  "docker run with seccomp, apparmor and systempaths unconfined: its capabilities are left, and its cgroups",
		caps: true, groups: true,
	},
	"masked": {
		Why: "a container without a filter, whose /proc has covers, so that no fresh one can be mounted", masked: true,
	},
	"no-user-namespaces": {Why: "a kernel or container that keeps user namespaces to root", newUser: unix.EPERM},
	"none-allowed":       {Why: "user.max_user_namespaces is 0", newUser: unix.ENOSPC},
	"ubuntu": {Why: "AppArmor's restriction: a user namespace is made, without capabilities in it",
		calls: all(unix.EACCES, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT,
			unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_MOUNT_SETATTR)},
}

func all(errno unix.Errno, calls ...uintptr) map[uintptr]unix.Errno {
	m := map[uintptr]unix.Errno{}
	for _, c := range calls {
		m[c] = errno
	}
	return m
}

// Behind makes this process a process of such a machine, for good; programs that it executes are there too. It
// must be the first call in main, and locks its thread.
func Behind(name string) error {
	m, ok := Machines[name]
	if !ok {
		return fmt.Errorf("no machine %q", name)
	}
	runtime.LockOSThread()
	if m.masked && (os.Geteuid() == 0 || !m.caps) {
		if err := mask(); err != nil {
			return fmt.Errorf("covers over /proc: %w", err)
		}
	}
	if m.groups && os.Geteuid() == 0 {
		if err := lookAtGroups(); err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
	}
	if m.caps {
		if err := dockersCapabilities(); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	prog := []unix.SockFilter{{Code: 0x20}} // the number of the call
	if m.newUser != 0 {
		prog = append(prog, jump(uint32(unix.SYS_CLONE3), unix.ENOSYS)...)
		kinds := uint32(unix.CLONE_NEWUSER)
		if m.any != 0 {
			kinds = 0x7e020000 // every CLONE_NEW*
		}
		for _, c := range []uintptr{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			prog = append(prog, unix.SockFilter{Code: 0x15, Jf: 4, K: uint32(c)}, // another call: past these
				unix.SockFilter{Code: 0x20, K: 16}, unix.SockFilter{Code: 0x45, Jf: 1, K: kinds},
				answer(m.newUser), unix.SockFilter{Code: 0x20})
		}
	}
	for c, errno := range m.calls {
		prog = append(prog, jump(uint32(c), errno)...)
	}
	prog = append(prog, unix.SockFilter{Code: 0x06, K: 0x7fff0000})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const allThreads = 1
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, allThreads,
		uintptr(unsafe.Pointer(&f))); e != 0 {
		return e
	}
	return nil
}

func answer(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: 0x06, K: 0x50000 | uint32(errno)}
}

func jump(call uint32, errno unix.Errno) []unix.SockFilter {
	return []unix.SockFilter{{Code: 0x15, Jf: 1, K: call}, answer(errno)}
}

// alone gives this process a mount namespace of its own.
func alone() error {
	return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// lookAtGroups mounts the cgroups as in containers: read-only for all users.
func lookAtGroups() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err = errors.Join(err, alone()); err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "cgroup") {
			err = errors.Join(err, unix.Mount("", f[1], "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	return err
}

// mask covers what container engines cover of /proc, in a mount namespace of this process's own.
func mask() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can cover it")
	}
	if err := alone(); err != nil {
		return err
	}
	for _, p := range []string{"/proc/keys", "/proc/timer_list", "/proc/kcore"} {
		if err := unix.Mount("/dev/null", p, "", unix.MS_BIND, ""); err != nil && err != unix.ENOENT {
			return err
		}
	}
	for _, p := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"} {
		if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REC, ""); err != nil && err != unix.ENOENT {
			return err
		} else if err == nil {
			if err := unix.Mount(p, p, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// dockersCapabilities leaves root what Docker leaves it.
func dockersCapabilities() error {
	if os.Geteuid() != 0 {
		return nil
	}
	keep := []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD,
		unix.CAP_NET_RAW, unix.CAP_SETGID,
		unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_KILL,
		unix.CAP_AUDIT_WRITE}
	var mask uint64
	for c := range uintptr(64) {
		if slices.Contains(keep, c) {
			mask |= 1 << c
		} else {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	for i := range data {
		half := uint32(mask >> (32 * i))
		data[i].Effective &= half
		data[i].Permitted &= half
		data[i].Inheritable = 0
	}
	return unix.Capset(&head, &data[0])
}

// BehindMain is for the main of a test: "behind MACHINE COMMAND..." executes the command there.
func BehindMain(args []string, look func(string) (string, error)) error {
	if len(args) < 2 {
		return errors.New("usage: behind MACHINE COMMAND [ARG]")
	}
	path, err := look(args[1])
	if err != nil {
		return err
	}
	if err := Behind(args[0]); err != nil {
		return err
	}
	return syscall.Exec(path, args[1:], os.Environ())
}
