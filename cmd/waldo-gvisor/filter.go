//go:build linux

package main

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// filter is a list of system calls that gVisor's kernel would serve, or refuse by itself, and that
// no program of an agent needs: they get EPERM. New namespaces by clone are the sink's to refuse. It is kept inside the guest: what escapes it is still in gVisor.
func filter() *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "ptrace", "process_vm_readv", "process_vm_writev",
				"keyctl", "add_key", "request_key", "bpf", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "perf_event_open",
				"personality", "acct", "swapon", "swapoff", "reboot", "sethostname", "setdomainname", "kexec_load",
				"init_module", "finit_module", "delete_module", "open_by_handle_at", "quotactl", "syslog", "kcmp",
				"shmget", "shmat", "shmctl", "msgget", "msgctl", "semget", "semctl", "semop"},
				Action: specs.ActErrno},
		},
	}
}
