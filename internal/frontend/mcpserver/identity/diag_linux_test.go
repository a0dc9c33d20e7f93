package identity

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
)

// TestDiag: the kernel names the user of a connection that stands, and of no other.
func TestDiag(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		from, to := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
		if uid, ok := diag(from, to); !ok || int(uid) != os.Getuid() {
			t.Errorf("the control: %s: user %d, %v", address, uid, ok)
		}
		// A socket listens at to; no connection goes from there to port 1.
		if uid, ok := diag(to, netip.AddrPortFrom(to.Addr(), 1)); ok {
			t.Errorf("%s: the user of a socket that listens: %d", address, uid)
		}
		// The client has sent all that it will, and still reads.
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(s)
		if uid, ok := diag(from, to); !ok || int(uid) != os.Getuid() {
			t.Errorf("%s: user %d, %v of a connection closed one way", address, uid, ok)
		}
		if uid, err := PeerOf(l.Addr(), net.TCPAddrFromAddrPort(from)); err != nil || uid != os.Getuid() {
			t.Errorf("%s: user %d, %v of a connection closed one way", address, uid, err)
		}
		// The client's end has no program, and the kernel says of it that it is root's.
		c.Close()
		if uid, ok := diag(from, to); ok {
			t.Errorf("%s: the user of a connection that its client has closed: %d", address, uid)
		}
		if _, err := PeerOf(l.Addr(), net.TCPAddrFromAddrPort(from)); err != errNone {
			t.Errorf("%s: the peer of a connection that its client has closed: %v", address, err)
		}
		s.Close()
		if uid, ok := diag(from, to); ok {
			t.Errorf("%s: the user of a connection that has ended: %d", address, uid)
		}
		if _, err := PeerOf(l.Addr(), net.TCPAddrFromAddrPort(from)); err != errNone {
			t.Errorf("%s: the peer of a connection that has ended: %v", address, err)
		}
	}
}

// BenchmarkPeer measures the cost of a new connection.
func BenchmarkPeer(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if _, err := PeerOf(c.RemoteAddr(), c.LocalAddr()); err != nil {
			b.Fatal(err)
		}
	}
}
