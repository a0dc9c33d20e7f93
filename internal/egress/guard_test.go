package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// TestGuards holds single walls that another stands behind, so that each is missed when it is gone.
func TestGuards(t *testing.T) {
	if what := Special(netip.MustParseAddr("::ffff:8.8.8.8")); what != "" {
		t.Errorf("a mapped public address is %s", what)
	}
	for _, s := range []string{"*.com", "com", "intranet", "*", "*."} {
		if _, err := ParseHostPattern(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	d := &Dialer{Policy: &Policy{}, Resolver: outsideNames, Connect: func(context.Context, netip.AddrPort) (net.Conn, error) {
		t.Error("a host that no rule names was dialled")
		return nil, io.EOF
	}}
	var why *Refusal
	if _, err := d.Dial(t.Context(), "evil.example", 443); !errors.As(err, &why) || why.Code != "egress.host" {
		t.Errorf("the zero policy: %v", err)
	}
	name := "api.example.com"
	plain := string(hello(&name, 0))
	if got, more, why := serverName([]byte(plain)); got != name || more || why != nil {
		t.Fatalf("control: %q %v %v", got, more, why)
	}
	const empty = "\xfe\x0d\x00\x00" // the extension encrypted_client_hello
	b := []byte(plain + empty)
	grow := func(at int) {
		b[at], b[at+1] = byte((int(b[at])<<8|int(b[at+1])+len(empty))>>8), b[at+1]+byte(len(empty))
	}
	at := 5 + 4 + 2 + 32 + 1 + 2 + 2 + 2 // extensions
	for _, n := range []int{3, 7, at} {  // record, message, extensions
		grow(n)
	}
	if _, _, why := serverName(b); why == nil || why.Code != "egress.tls.ech" {
		t.Errorf("an encrypted ClientHello: %v", why)
	}
}
