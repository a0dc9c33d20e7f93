package jsonrpc

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeBuf is how much a pipe that can be written to takes without waiting (pipe(7), PIPE_BUF).
const pipeBuf = 4096

// direct returns a function that writes to w as much as fits without blocking. It leaves errors to the next w.Write. It
// returns nil if w is not an open file.
func direct(w io.Writer) func(b []byte) int {
	file, ok := w.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	waits := true
	_ = raw.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		waits = err != nil || flags&unix.O_NONBLOCK == 0
	})
	return func(b []byte) (n int) {
		if waits && len(b) > pipeBuf {
			return 0
		}
		_ = raw.Write(func(fd uintptr) bool {
			if !waits || writable(int(fd)) {
				n, _ = unix.Write(int(fd), b)
			}
			return true
		})
		return max(n, 0)
	}
}

func writable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents == unix.POLLOUT
}
