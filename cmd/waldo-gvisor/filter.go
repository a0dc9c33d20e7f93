//go:build linux

package main

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// filter lists system calls that gVisor's kernel would serve and that no program of an agent needs. They fail
// with EPERM. They do not appear among the denials: gVisor evaluates a filter before the sink. Calls that
// gVisor refuses by itself are not listed. The sink refuses new namespaces by clone.
func filter() *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "keyctl", "add_key",
				"request_key",
				"personality", "shmget", "shmat", "shmctl", "msgget", "msgctl", "semget", "semctl", "semop"},
				Action: specs.ActErrno},
		},
	}
}
