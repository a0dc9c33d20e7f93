package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// TestForward: a connection to this machine's loopback is forwarded in both directions. One direction can end first,
// and listening ends with the forward.
func TestForward(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dials := 0
	f := &Port{port: 7, dial: func(_ context.Context, port uint16) (net.Conn, error) {
		if dials++; dials > 1 {
			return nil, errors.New("nobody answers")
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		go func() {
			defer l.Close()
			if c, err := l.Accept(); err == nil {
				b, _ := io.ReadAll(c)
				_, _ = c.Write(append(b, '!'))
				c.Close()
			}
		}()
		return net.Dial("tcp4", l.Addr().String())
	}}
	listeners, err := f.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { f.Accept(ctx, listeners); close(ended) }()
	addr := listeners[0].Addr()
	if ip := addr.(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("it listens at %v", ip)
	}
	for _, want := range []string{"moo!", ""} {
		c, err := net.Dial("tcp4", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("moo"))
		_ = c.(*net.TCPConn).CloseWrite()
		if b, _ := io.ReadAll(c); string(b) != want {
			t.Errorf("answered %q, want %q", b, want)
		}
		c.Close()
	}
	cancel()
	<-ended
	if c, err := net.Dial("tcp4", addr.String()); err == nil {
		c.Close()
		t.Error("it listens still")
	}
}

// TestPorts: a port must be a valid number, and the local port can differ.
func TestPorts(t *testing.T) {
	for text, want := range map[string][2]uint16{
		"3000": {3000, 3000}, "3000:8080": {3000, 8080}, "3000:0": {3000, 0}, "65535": {65535, 65535},
	} {
		if port, local, err := Parse(text); err != nil || port != want[0] || local != want[1] {
			t.Errorf("%s: %d %d %v", text, port, local, err)
		}
	}
	for _, text := range []string{"", "0", "65536", "-1", "3000:", "3000:x", "3000:1:2", "0.0.0.0:3000"} {
		if port, local, err := Parse(text); err == nil {
			t.Errorf("%q: %d %d", text, port, local)
		}
	}
}
