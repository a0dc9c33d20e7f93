package remote

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// silent reports whether a connection that waits is still open and holds nothing unasked.
func silent(c net.Conn) (ok bool) {
	s, is := c.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	_ = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ok = err == unix.EAGAIN
	})
	return ok
}
