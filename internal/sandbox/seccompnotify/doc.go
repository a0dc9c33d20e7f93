// Package seccompnotify receives refused calls of code in a sandbox from the kernel, through the listener of
// the sandbox's seccomp filter (seccomp_unotify(2)).
package seccompnotify
