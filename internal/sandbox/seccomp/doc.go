// Package seccomp compiles the list of system calls that a sandbox can make into a BPF filter. A call that the
// list does not name fails with ENOSYS, or with EPERM if it is known and refused. The package runs outside the
// sandbox; the driver installs the bytes.
package seccomp
