//go:build linux && (amd64 || arm64)

package gvisor

import (
	"slices"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

const lookups = `
import socket, struct
for name in ("evil.example.org", "EVIL.example.org", "localhost"):
    try: print(socket.getaddrinfo(name, 443)[0][4][0])
    except OSError as e: print(e.errno)
question = b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"".join(struct.pack("B", len(p)) + p for p in (b"raw", b"example", b"org")) + b"\0\0\1\0\1"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(question, ("127.0.0.1", 53))
s.sendmsg([question.replace(b"raw", b"msg")], [], 0, ("127.0.0.1", 53))
s.sendto(question.replace(b"raw", b"not"), ("127.0.0.1", 54))
s.sendto(b"no question", ("127.0.0.1", 53))
`

// TestLookup: without egress a name lookup fails at once, and the facts of its command name the host. Other messages
// do not count as lookups.
func TestLookup(t *testing.T) {
	sb, err := driver(t).Start(t.Context(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	f, err := sb.Run(t.Context(), sandbox.Command{
		Argv: []string{"/usr/bin/python3", "-c", lookups}, Env: []string{"PATH=/usr/bin"},
	})
	want := []string{"evil.example.org", "raw.example.org", "msg.example.org"}
	if err != nil || f.Stdout != "-3\n-3\n127.0.0.1\n" || !slices.Equal(f.Network.Denied, want) {
		t.Errorf("%q %v %q %v", f.Stdout, f.Network.Denied, f.Stderr, err)
	}
	if f.Usage.WallMS > 4000 {
		t.Errorf("took %v ms", f.Usage.WallMS)
	}
}
