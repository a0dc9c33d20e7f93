package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"waldo/internal/network/loopback"
)

// TestOwnPorts: code in a sandbox does not reach a port where waldo listens, at either address of localhost. The controls
// are another program's port, waldo's own dialling, and the port after waldo.
func TestOwnPorts(t *testing.T) {
	l, err := loopback.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 9)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			accepted <- c
		}
	}()
	other := answering(t, func(c net.Conn) { c.Close() })
	dial := func(addr string, sandbox bool) error {
		port := netip.MustParseAddrPort(addr).Port()
		rules, err := ParseRules([]string{fmt.Sprint("localhost:", port)})
		if err != nil {
			t.Fatal(err)
		}
		d := &Dialer{Policy: &Policy{Rules: rules}}
		if sandbox {
			s, err := NewServer(d, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		c, err := d.Dial(t.Context(), "localhost", port)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(other, true); err != nil {
		t.Fatalf("control: %v", err)
	}
	var why *Refusal
	if err := dial(l.Addr().String(), true); !errors.As(err, &why) || why.Code != "egress.own" || len(accepted) > 0 {
		t.Errorf("waldo's port: %v, %d connections", err, len(accepted))
	}
	if err := dial(l.Addr().String(), false); err != nil {
		t.Errorf("control: waldo's own dialling: %v", err)
	}
	l.Close()
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := dial(l.Addr().String(), true); err != nil {
		t.Errorf("control: after waldo: %v", err)
	}
}
