// Package namespace makes boxes out of Linux namespaces, seccomp, Landlock, cgroups and rlimits,
// in pure Go: no cgo, no tool of the host, and no root where the kernel gives user namespaces.
//
// A box is prepared by a program of a few dozen instructions (machine_*.s) that waldo writes to a
// sealed memfd. It knows one thing: to walk a list of system calls that waldo sends it. It becomes
// the box's PID 1, so nothing in the box ever shares memory with waldo, and what it reports of the
// agent's process comes from the kernel.
package namespace
