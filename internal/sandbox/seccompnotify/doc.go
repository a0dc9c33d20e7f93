// Package seccompnotify hears from the kernel what code in a box tried and was refused, through the
// listener of the box's seccomp filter (seccomp_unotify(2)).
package seccompnotify
