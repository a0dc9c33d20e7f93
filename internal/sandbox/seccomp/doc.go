// Package seccomp compiles the list of system calls that a box may make into a BPF filter. What
// the list does not name does not exist: it fails with ENOSYS, or with EPERM where it is known
// and refused. Nothing here runs in the box; the driver installs the bytes.
package seccomp
