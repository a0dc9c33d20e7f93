package egress

import (
	"net"

	"golang.org/x/sys/unix"
)

// nearby is the round trip, in microseconds, below which a peer is on this machine or beside it.
const nearby = 1000

// near sets a small receive buffer for a local peer's connection, one that fits the processor's cache. The kernel's
// default grows for distant peers.
func near(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && i.Rtt < nearby {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
		}
	})
}
