//go:build linux && (amd64 || arm64)

package keeper

import (
	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/initproc"
)

// CopyProc appends steps that mount a copy of the keeper's /proc at /proc. Only a process of the PID namespace could
// mount one, and other commands would see the host's mounts in that process until it has left them. keeper and own are
// descriptors of mount namespaces, free is the lowest free descriptor.
func CopyProc(l *initproc.List, keeper, own, free int, hint string) {
	l.Call("enter the keeper's mounts", unix.SYS_SETNS, keeper, unix.CLONE_NEWNS)
	l.Call("copy /proc", unix.SYS_OPEN_TREE, atCWD, "/proc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	l.Hint(hint)
	l.Optional()
	l.Call("return to its mounts", unix.SYS_SETNS, own, unix.CLONE_NEWNS)
	l.Ignore("mount /proc", unix.SYS_MOVE_MOUNT, free, "", atCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH)
	l.Ignore("close it", unix.SYS_CLOSE, free)
}
