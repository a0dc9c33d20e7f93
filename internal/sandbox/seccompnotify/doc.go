// Package seccompnotify hears from the kernel what code in a sandbox tried and was refused, through the
// listener of the sandbox's seccomp filter (seccomp_unotify(2)).
package seccompnotify
