// Package namespace makes sandboxes out of Linux namespaces, seccomp, Landlock, cgroups and rlimits, in pure Go: no
// cgo, no tool of the host, and no root where the kernel gives user namespaces.
//
// A sandbox is prepared by a program of a few dozen instructions (machine_*.s) that waldo writes to a sealed memfd.
// The program does one thing: it executes lists of system calls that waldo sends. It becomes the sandbox's PID 1, so
// no process in the sandbox ever shares memory with waldo. Its reports about the agent's process come from the
// kernel.
package namespace
