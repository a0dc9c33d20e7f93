//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

// served is the far end of a sandbox's way out: it says at which address it was reached.
type served struct {
	egress sandbox.Egress
	closed atomic.Bool
}

func (s *served) Close() error { s.closed.Store(true); return s.egress.Names.Close() }

func (s *served) serve(w sandbox.Egress) io.Closer {
	s.egress = w
	for _, l := range append(w.TCP, w.Proxy) {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(c, "reached %s\n", c.LocalAddr())
				c.Close()
			}
		}()
	}
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := w.Names.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = w.Names.WriteTo(b[:n], from)
		}
	}()
	return s
}

const reachOutside = `
import socket
print(open("/etc/resolv.conf").readline().strip())
u=socket.socket(2,2); u.settimeout(2); u.sendto(b"name?",("198.18.0.1",53)); print(u.recv(10))
for at in (("198.18.0.1",3128),("198.19.7.7",4444),("198.18.3.4",4445),("93.184.215.14",4444),("2606:4700::1",4444)):
    try: print(socket.create_connection(at,2).recv(100).decode().strip())
    except OSError as e: print(at[0], at[1], e.errno)
try: socket.socket(2,1).bind(("0.0.0.0",4444))
except OSError as e: print("bind", e.errno)
`

// TestWay: connections from a sandbox to any outside address, at an allowed port, reach waldo, and no others leave
// it. Without ports there is no such address.
func TestWay(t *testing.T) {
	s := &served{}
	p := sandboxtest.Profile()
	p.Network = sandbox.Network{Hosts: []string{"example.com"}, Ports: []uint16{4444}, Serve: s.serve}
	want := "nameserver 198.18.0.1\nb'name?'\nreached 198.18.0.1:3128\nreached 198.19.7.7:4444\n198.18.3.4 4445 111\n" +
		"93.184.215.14 4444 101\n2606:4700::1 4444 101\nbind 98"
	for _, open := range []bool{true, false} {
		if !open {
			p.Network, want = sandbox.Network{}, "101"
		}
		sb, err := namespace.New(namespace.Options{}).Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := sb.Run(t.Context(), sandbox.Command{Argv: []string{"/usr/bin/python3", "-c", reachOutside},
			Env: []string{"PATH=/usr/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(f.Stdout); open && got != want ||
			!open && !strings.Contains(f.Stderr, "Network is unreachable") {
			t.Errorf("ports %v: %q %q, want %q", p.Network.Ports, got, f.Stderr, want)
		}
		for _, d := range f.Network.Denied {
			if open && strings.HasPrefix(d, "198.1") {
				t.Errorf("%s is told as denied, and waldo was asked", d)
			}
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
		if open && !s.closed.Load() {
			t.Error("the sandbox is over, and its egress is not")
		}
	}
	p.Network = sandbox.Network{Ports: []uint16{53}, Serve: s.serve}
	if _, err := namespace.New(namespace.Options{}).Start(t.Context(), p); err == nil {
		t.Error("port 53 belongs to names")
	}
}

const lookups = `
import socket
for name in ("evil.example.org", "EVIL.example.org", "localhost"):
    try: print(socket.getaddrinfo(name, 443)[0][4][0])
    except OSError as e: print(e.errno)
`

// TestLookup: without egress a name lookup fails at once, and the facts of its command name the host.
func TestLookup(t *testing.T) {
	sb, err := namespace.New(namespace.Options{}).Start(t.Context(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	for _, c := range []struct {
		code, out string
		denied    []string
	}{{lookups, "-3\n-3\n127.0.0.1\n", []string{"evil.example.org"}}, {"print(1)", "1\n", nil}} {
		f, err := sb.Run(t.Context(), sandbox.Command{
			Argv: []string{"/usr/bin/python3", "-c", c.code}, Env: []string{"PATH=/usr/bin"},
		})
		if err != nil || f.Stdout != c.out || !slices.Equal(f.Network.Denied, c.denied) &&
			len(f.Network.Denied)+len(c.denied) > 0 {
			t.Errorf("%q %v %q %v", f.Stdout, f.Network.Denied, f.Stderr, err)
		}
		if f.Usage.WallMS > 4000 {
			t.Errorf("took %v ms", f.Usage.WallMS)
		}
	}
}
