package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/hostrule"
)

// TestGuards holds single walls that another stands behind, so that each is missed when it is gone.
func TestGuards(t *testing.T) {
	if what := Special(netip.MustParseAddr("::ffff:8.8.8.8")); what != "" {
		t.Errorf("a mapped public address is %s", what)
	}
	for _, s := range []string{"*.com", "com", "intranet", "*", "*."} {
		if _, err := hostrule.ParsePattern(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	d := &Dialer{Policy: &Policy{}, Resolver: outsideNames,
		Connect: func(context.Context, netip.AddrPort) (net.Conn, error) {
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

// TestPublicRule: the rule for every public host opens no other address, however it is named, and no other port.
func TestPublicRule(t *testing.T) {
	names := fixed{"api.example.com": {"93.184.215.14"}, "metadata.google.internal": {"169.254.169.254"},
		"inside.example.com": {"10.0.0.5"}, "foo.localhost": {"127.0.0.1"}, "mixed.example.com": {"93.184.215.14", "10.0.0.5"},
		"intranet": {"93.184.215.14"}}
	var to string
	d := &Dialer{Policy: &Policy{Rules: []Rule{Public()}}, Resolver: names,
		Connect: func(_ context.Context, a netip.AddrPort) (net.Conn, error) {
			to = a.String()
			return nil, io.EOF
		}}
	for _, row := range []struct {
		host string
		port uint16
		want string // the address that is dialled, or the code of the refusal
	}{
		{"api.example.com", 443, "93.184.215.14:443"}, {"93.184.215.14", 80, "93.184.215.14:80"}, // controls
		{"169.254.169.254", 80, "egress.address"}, {"metadata.google.internal", 80, "egress.address"},
		{"10.0.0.5", 80, "egress.address"}, {"inside.example.com", 443, "egress.address"},
		{"mixed.example.com", 443, "egress.address"}, {"100.100.100.200", 80, "egress.address"},
		{"127.0.0.1", 80, "egress.address"}, {"::1", 80, "egress.address"}, {"::ffff:10.0.0.5", 80, "egress.address"},
		{"fd00:ec2::254", 80, "egress.address"}, {"foo.localhost", 80, "egress.address"}, {"localhost", 80, "egress.host"},
		{"LOCALHOST.", 80, "egress.host"}, {"intranet", 80, "egress.host"}, {"api.example.com", 22, "egress.port"},
	} {
		to = ""
		_, err := d.Dial(t.Context(), row.host, row.port)
		got := to
		if why := (*Refusal)(nil); errors.As(err, &why) {
			got += why.Code
		}
		if got != row.want {
			t.Errorf("%s:%d: %q, want %q", row.host, row.port, got, row.want)
		}
	}
}

// TestWebGuards holds the walls of HTTP, each with a control that passes.
func TestWebGuards(t *testing.T) {
	say := func(g *rig, text string) string {
		c, err := net.Dial("tcp", g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, text)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	for body, want := range map[string]string{
		"": "200", "Content-Length: 5\r\n": "403", "Transfer-Encoding: chunked\r\n": "403",
	} {
		g := newRig(t, Limits{}, "api.example.com")
		if got := say(g, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n"+body+
			"\r\n"); !strings.Contains(got, want) {
			t.Errorf("CONNECT with %q: %q", body, got)
		}
		if want == "403" && !slices.Equal(g.codes(), []string{"egress.proxy"}) {
			t.Errorf("CONNECT with %q: %q", body, g.codes())
		}
	}
	// a refused upgrade leaves an HTTP connection
	for up, want := range map[string]string{"websocket": "101", "h2c": "200"} {
		g := newRig(t, Limits{}, "api.example.com")
		g.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				return
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+r.Header.Get("Upgrade")+
				"\r\nConnection: Upgrade\r\n\r\n")
			_ = c.Close()
		}
		if got := say(g, "GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: "+
			up+"\r\n\r\n"); !strings.Contains(got, want) {
			t.Errorf("Upgrade: %s: %q", up, got)
		}
	}
	to := Target{Scheme: "http", Host: "api.example.com", Port: 80}
	for _, row := range []struct{ method, uri, code string }{
		{"GET", "/x", ""}, {"OPTIONS", "*", ""}, {"CONNECT", "/x", "egress.http"}, {"GET", "x", "egress.http"},
		{"GET", "ftp://api.example.com/", "egress.http"},
		{"GET", "http://api.example.com/x", ""}, {"GET", "http://evil.example/", "egress.http.host"},
	} {
		_, why := originTarget(&http.Request{Method: row.method, Host: "api.example.com", RequestURI: row.uri}, to)
		if why == nil && row.code != "" || why != nil && why.Code != row.code {
			t.Errorf("%s %s: %v", row.method, row.uri, why)
		}
	}
	p := policyOf(t, "api.example.com:443")
	if why := p.Classify("api.example.com", 443); why != nil {
		t.Errorf("control: %v", why)
	}
	if why := p.Classify("api.example.com", 80); why == nil || why.Code != "egress.port" {
		t.Errorf("another port: %v", why)
	}
}

// TestPlainPath: there is one reading of a path, or none.
func TestPlainPath(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b": "/a/b", "/a/": "/a/", "/a%20b?x=/../": "/a b", "/%C3%BC": "/ü", "/a/../b": "", "/./a": "", "/a//b": "",
		"/a/..": "", "/%2e%2e/b": "", "/a%2fb": "", "/a%5Cb": "", `/a\b`: "", "/a%00": "", "/a%0a": "", "/%2561": "",
		"/%61": "", "/a;b": "", "/a%3Bb": "", "/%": "", "/%zz": "", "/%ff": "", "a": "",
	} {
		got, ok := plainPath(target)
		if target == "a" {
			ok = ok && got[0] == '/'
		}
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q %v", target, got, ok)
		}
	}
}

// TestPace: one request too many in a second is refused, and bytes wait.
func TestPace(t *testing.T) {
	within := func(try func()) { // a second: a busy machine needs more, and gets another
		for tries, began := 0, time.Now().Add(-time.Hour); time.Since(began) > time.Second; tries++ {
			if tries == 30 {
				t.Fatal("the machine is too busy for a second's limit")
			}
			began = time.Now()
			try()
		}
	}
	var got []string
	within(func() {
		g := newRig(t, Limits{PerSec: 2}, "GET api.example.com/*")
		got = nil
		for range 3 {
			_, a := g.ask(t, false, "GET", "https://api.example.com/", nil, "")
			got = append(got, a)
		}
	})
	if !strings.HasPrefix(got[0]+got[1], "hello") || !strings.Contains(got[2], "egress.limit.requests") {
		t.Errorf("%q", got)
	}
	l := answering(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write(make([]byte, 150_000))
		_ = c.Close()
	})
	for rate, slow := range map[int64]bool{0: false, 100_000: true} { // of 150,000 bytes 100,000 are there at once
		g := newRig(t, Limits{BytesPerSec: rate}, "raw.example.org:5000")
		g.raw = l
		least := time.Hour
		// an undelayed request is fast at least once
		for tries := 0; least > 300*time.Millisecond && tries < 5; tries++ {
			began := time.Now()
			c := g.direct(t, "raw.example.org", 5000)
			_, _ = io.WriteString(c, "\x00")
			if n, _ := io.Copy(io.Discard, c); n != 150_000 {
				t.Errorf("rate %d: %d bytes", rate, n)
			}
			if least = min(least, time.Since(began)); slow {
				break
			}
		}
		if (least > 300*time.Millisecond) != slow {
			t.Errorf("rate %d: %v", rate, least)
		}
	}
	var sizes [2]int64
	within(func() {
		g := newRig(t, Limits{PerSec: 1}, "raw.example.org:5000")
		g.raw = l
		for i := range sizes {
			c := g.direct(t, "raw.example.org", 5000)
			_, _ = io.WriteString(c, "\x00")
			sizes[i], _ = io.Copy(io.Discard, c)
		}
	})
	if sizes[0] == 0 || sizes[1] > 0 {
		t.Errorf("two connections in a second: %d bytes", sizes)
	}
}
