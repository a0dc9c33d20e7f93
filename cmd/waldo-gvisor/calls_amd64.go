package main

import "golang.org/x/sys/unix"

// oldCalls are those that arm64 never had.
var oldCalls = map[uintptr]call{
	unix.SYS_OPEN:    {filesystem, "open", 1},
	unix.SYS_CREAT:   {filesystem, "creat", 1},
	unix.SYS_MKDIR:   {filesystem, "mkdir", 1},
	unix.SYS_MKNOD:   {filesystem, "mknod", 1},
	unix.SYS_RMDIR:   {filesystem, "rmdir", 1},
	unix.SYS_UNLINK:  {filesystem, "unlink", 1},
	unix.SYS_RENAME:  {filesystem, "rename", 1},
	unix.SYS_LINK:    {filesystem, "link", 2},
	unix.SYS_SYMLINK: {filesystem, "symlink", 2},
	unix.SYS_CHMOD:   {filesystem, "chmod", 1},
	unix.SYS_CHOWN:   {filesystem, "chown", 1},
	unix.SYS_IOPL:    {syscalls, "iopl", 0},
	unix.SYS_IOPERM:  {syscalls, "ioperm", 0},
}
