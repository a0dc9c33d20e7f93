package loopback

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// early has the kernel give out an address that the machine does not have yet (IPV6_FREEBIND, Linux 4.15). So waldo
// holds ::1 also where IPv6 is switched off, and when it is switched on later.
func early(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

// nobody reports an error after which no process of this machine can listen on ::1: the kernel has no IPv6.
func nobody(err error) bool { return errors.Is(err, unix.EAFNOSUPPORT) }
