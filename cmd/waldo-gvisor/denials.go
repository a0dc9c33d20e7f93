//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"

	"waldo/internal/sandbox/gvisor/job"
)

// The kinds of denial (facts.Denial).
const (
	network    = "network"
	filesystem = "filesystem"
	syscalls   = "syscall"
)

// call is a system call whose refusals are noted.
type call struct {
	kind, name string
	arg        int // which argument names what it was about, from 1; 0: none
}

// table lists them by number.
var table = calls()

func calls() map[uintptr]call {
	out := map[uintptr]call{
		unix.SYS_CONNECT: {network, "connect", 2},
		unix.SYS_BIND:    {network, "bind", 2},
		unix.SYS_SENDTO:  {network, "sendto", 5},
		unix.SYS_SOCKET:  {network, "socket", 0},

		unix.SYS_OPENAT:    {filesystem, "openat", 2},
		unix.SYS_OPENAT2:   {filesystem, "openat2", 2},
		unix.SYS_MKDIRAT:   {filesystem, "mkdirat", 2},
		unix.SYS_MKNODAT:   {filesystem, "mknodat", 2},
		unix.SYS_UNLINKAT:  {filesystem, "unlinkat", 2},
		unix.SYS_RENAMEAT2: {filesystem, "renameat2", 2},
		unix.SYS_LINKAT:    {filesystem, "linkat", 4},
		unix.SYS_SYMLINKAT: {filesystem, "symlinkat", 3},
		unix.SYS_FCHMODAT:  {filesystem, "fchmodat", 2},
		unix.SYS_FCHOWNAT:  {filesystem, "fchownat", 2},
		unix.SYS_TRUNCATE:  {filesystem, "truncate", 1},
		unix.SYS_EXECVE:    {filesystem, "execve", 1},
	}
	for sysno, name := range map[uintptr]string{
		unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2", unix.SYS_PIVOT_ROOT: "pivot_root", unix.SYS_CHROOT: "chroot",
		unix.SYS_UNSHARE: "unshare", unix.SYS_SETNS: "setns", unix.SYS_PTRACE: "ptrace",
		unix.SYS_PROCESS_VM_READV:  "process_vm_readv",
		unix.SYS_PROCESS_VM_WRITEV: "process_vm_writev", unix.SYS_KILL: "kill", unix.SYS_BPF: "bpf",
		unix.SYS_KEYCTL:  "keyctl",
		unix.SYS_ADD_KEY: "add_key", unix.SYS_IO_URING_SETUP: "io_uring_setup", unix.SYS_USERFAULTFD: "userfaultfd",
		unix.SYS_PERF_EVENT_OPEN: "perf_event_open", unix.SYS_INIT_MODULE: "init_module",
		unix.SYS_FINIT_MODULE: "finit_module",
		unix.SYS_KEXEC_LOAD:   "kexec_load", unix.SYS_REBOOT: "reboot", unix.SYS_SETHOSTNAME: "sethostname",
		unix.SYS_SWAPON:        "swapon",
		unix.SYS_CLOCK_SETTIME: "clock_settime", unix.SYS_SETTIMEOFDAY: "settimeofday",
		unix.SYS_OPEN_BY_HANDLE_AT: "open_by_handle_at",
		unix.SYS_FANOTIFY_INIT:     "fanotify_init", unix.SYS_SETUID: "setuid", unix.SYS_SETGID: "setgid",
		unix.SYS_SETGROUPS: "setgroups",
		unix.SYS_SETRESUID: "setresuid", unix.SYS_SETRESGID: "setresgid", unix.SYS_CAPSET: "capset",
		unix.SYS_SYSLOG:     "syslog",
		unix.SYS_MOVE_MOUNT: "move_mount", unix.SYS_FSOPEN: "fsopen", unix.SYS_OPEN_TREE: "open_tree",
		unix.SYS_MOUNT_SETATTR: "mount_setattr",
		unix.SYS_ACCT:          "acct", unix.SYS_QUOTACTL: "quotactl", unix.SYS_KCMP: "kcmp",
	} {
		out[sysno] = call{syscalls, name, 0}
	}
	for sysno, c := range oldCalls {
		out[sysno] = c
	}
	return out
}

// The errors that mean a refusal, by kind. Others are the ordinary life of programs.
var refusals = map[string][]unix.Errno{
	network: {unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT,
		unix.ESOCKTNOSUPPORT},
	filesystem: {unix.EROFS, unix.EACCES, unix.EPERM},
	syscalls:   {unix.EPERM, unix.EACCES, unix.ENOSYS},
}

func (c call) refusal(e unix.Errno) bool { return slices.Contains(refusals[c.kind], e) }

// maxWhat is the longest path that a denial records, in bytes.
const maxWhat = 256

// describe says what the call was about. It reads the guest's memory after the call, so a guest
// that rewrites its arguments meanwhile decides what is shown; the kind and the error are the kernel's.
func (c call) describe(t *kernel.Task, info *pb.Syscall) string {
	args := []uint64{0, info.Arg1, info.Arg2, info.Arg3, info.Arg4, info.Arg5, info.Arg6}
	if c.arg == 0 || args[c.arg] == 0 {
		return c.name
	}
	at := hostarch.Addr(args[c.arg])
	if c.kind == network {
		if a := address(t, at, args[c.arg+1]); a != "" {
			return c.name + " " + a
		}
		return c.name
	}
	path, err := t.CopyInString(at, 4096)
	if err != nil {
		return c.name
	}
	if len(path) > maxWhat {
		return fmt.Sprintf("%s a path of %d bytes", c.name, len(path)) // a part could be that of a secret
	}
	return c.name + " " + strings.ToValidUTF8(path, "\uFFFD")
}

// address reads a socket address of the guest.
func address(t *kernel.Task, at hostarch.Addr, size uint64) string {
	b := make([]byte, min(size, 128))
	if n, err := t.CopyInBytes(at, b); err != nil || n < 2 {
		return ""
	}
	return job.Address(b)
}
