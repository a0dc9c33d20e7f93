//go:build linux

package main

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// filter is a list of system calls that gVisor's kernel would serve and that no program of an agent
// needs: they get EPERM, and are not among the denials that are told, because gVisor looks at a
// filter before it looks at us. What gVisor refuses by itself is left to it. New namespaces by
// clone are the sink's to refuse.
func filter() *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "keyctl", "add_key", "request_key",
				"personality", "shmget", "shmat", "shmctl", "msgget", "msgctl", "semget", "semctl", "semop"},
				Action: specs.ActErrno},
		},
	}
}
