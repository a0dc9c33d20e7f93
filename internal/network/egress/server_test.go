package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/corpus"
)

// rig is a server with an outside of its own: one HTTP and one TLS server, and who was asked.
type rig struct {
	*Server
	roots *x509.CertPool
	proxy string

	mu    sync.Mutex
	went  []netip.AddrPort
	hosts []string // Host headers that arrived outside
	urls  []string
	raw   string // address that answers at other ports
	heads []http.Header
	facts facts.Facts
	early []string // informational answers (1xx)
	// answer is the handler of the servers outside; nil: hello
	answer http.HandlerFunc
}

type fixed map[string][]string

func (f fixed) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, err error) {
	for _, a := range f[strings.TrimSuffix(host, ".")] {
		out = append(out, netip.MustParseAddr(a))
	}
	if len(out) == 0 {
		err = &net.DNSError{IsNotFound: true, Err: "no such host", Name: host}
	}
	return out, err
}

var outsideNames = fixed{"api.example.com": {"93.184.215.14"}, "files.example.org": {"93.184.215.20"},
	"a.trusted.example": {"93.184.215.30"},
	"evil.example":      {"93.184.215.66"}, "raw.example.org": {"93.184.215.31"}, "inside.example.com": {"10.0.0.5"}}

// certificate returns one for names, and a pool that trusts it.
func certificate(t testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func newRig(t testing.TB, limits Limits, lines ...string) *rig {
	t.Helper()
	return newRigWith(t, limits, Options{}, lines...)
}

func newRigWith(t testing.TB, limits Limits, o Options, lines ...string) *rig {
	t.Helper()
	rules, err := ParseRules(lines)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.hosts, g.urls, g.heads = append(g.hosts, r.Host), append(g.urls, r.Method+" "+r.RequestURI),
			append(g.heads, r.Header.Clone())
		answer := g.answer
		g.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello from "+r.Host)
	})
	plain, secure := httptest.NewServer(h), httptest.NewUnstartedServer(h)
	cert, roots := certificate(t, "api.example.com", "*.trusted.example")
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	g.roots = roots
	d := &Dialer{Policy: &Policy{Rules: rules, Limits: limits}, Resolver: outsideNames, Roots: roots,
		Connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			g.mu.Lock()
			g.went = append(g.went, to)
			g.mu.Unlock()
			at := plain.Listener.Addr().String()
			if to.Port() == 443 || to.Port() == 8443 {
				at = secure.Listener.Addr().String()
			} else if to.Port() != 80 && g.raw != "" {
				at = g.raw
			}
			c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if err != nil {
				return nil, err
			}
			return at443{c, to}, nil
		}}
	if g.Server, err = NewServer(d, o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.proxy = l.Addr().String()
	g.Serve(sandbox.Egress{Names: u, Proxy: l})
	t.Cleanup(func() { _ = g.Close(); plain.Close(); secure.Close() })
	return g
}

// at443 is a connection that says it is to the address that was asked for.
type at443 struct {
	net.Conn
	to netip.AddrPort
}

func (c at443) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

func (c at443) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// direct makes a connection as the sandbox makes one to a host and port, and returns the sandbox's end.
func (g *rig) direct(t testing.TB, host string, port uint16) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer in.Close(); g.carry(&first{Conn: in}, host, port) }()
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func (g *rig) told() []facts.Attempt {
	g.Report(&g.facts)
	return g.facts.Network.Attempts
}

// codes are the reasons of the refused attempts, and "" for the allowed ones.
func (g *rig) codes() (out []string) {
	for _, a := range g.told() {
		out = append(out, a.Why)
	}
	return out
}

type wireRow struct {
	ID, Expect, Class string
	Input             struct {
		Kind    string
		Bytes   string `json:"bytes_b64"`
		Connect string
		SNI     *string
		First   string `json:"first_bytes"`
		Split   int    `json:"fragment"`
	}
}

func wireRows(t testing.TB, kind string) (out []wireRow) {
	for _, r := range corpus.Rows[wireRow](t, "egress.jsonl") {
		if r.Input.Kind == kind {
			out = append(out, r)
		}
	}
	if len(out) < 8 {
		t.Fatalf("%d rows of %s: this is not the corpus", len(out), kind)
	}
	return out
}

// TestCorpusProxy speaks every row of bytes to the proxy.
func TestCorpusProxy(t *testing.T) {
	for _, r := range wireRows(t, "proxy_raw") {
		g := newRig(t, Limits{}, "api.example.com", "files.example.org:8443", "*.trusted.example")
		text, err := base64.StdEncoding.DecodeString(r.Input.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(text)
		var answer []byte
		in := bufio.NewReader(c)
		if r.Expect == "allow" || r.Expect == "uses_request_target" { // however long that takes
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			answer, _ = in.ReadBytes('\n')
		}
		_ = c.SetReadDeadline(time.Now().Add(80 * time.Millisecond))
		rest, _ := io.ReadAll(in)
		answer = append(answer, rest...)
		_ = c.Close()
		ok := bytes.HasPrefix(answer, []byte("HTTP/1.1 200"))
		g.mu.Lock()
		went, hosts := len(g.went), strings.Join(g.hosts, " ")
		g.mu.Unlock()
		switch r.Expect {
		case "allow", "uses_request_target":
			if !ok {
				t.Errorf("%s: %q", r.ID, answer)
			}
		case "deny", "deny_or_local", "deny_after_timeout", "policy_no_plain_https", "deny_or_same_host":
			if ok || went > 0 {
				t.Errorf("%s: %q, %d connections", r.ID, answer, went)
			}
		case "second_denied":
			if bytes.Count(answer, []byte("HTTP/1.1 200")) != 1 || !bytes.Contains(answer, []byte("egress.host")) ||
				hosts != "api.example.com" {
				t.Errorf("%s: %q, hosts %q", r.ID, answer, hosts)
			}
		}
		for _, h := range strings.Fields(hosts) { // for every row, nothing reaches another host
			if h != "api.example.com" {
				t.Errorf("%s: a request for %s went out", r.ID, h)
			}
		}
		_ = g.Close()
	}
}

// hello is a ClientHello for a name, cut into records of at most split bytes.
func hello(sni *string, split int) []byte {
	v := func(size int, b []byte) []byte {
		n := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
		return append(n[4-size:], b...)
	}
	var exts []byte
	if sni != nil {
		exts = append([]byte{0, 0}, v(2, v(2, append([]byte{0}, v(2, []byte(*sni))...)))...)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, v(1, nil)...)
	body = append(body, v(2, []byte{0x13, 1})...)
	body = append(body, v(1, []byte{0})...)
	msg := append([]byte{1}, v(3, append(body, v(2, exts)...))...)
	var out []byte
	for len(msg) > 0 {
		n := len(msg)
		if split > 0 {
			n = min(n, split)
		}
		out = append(append(out, 22, 3, 1), v(2, msg[:n])...)
		msg = msg[n:]
	}
	return out
}

// TestCorpusTLS makes every row's connection through CONNECT and checks the outgoing bytes.
func TestCorpusTLS(t *testing.T) {
	tries := 0
	for rows := wireRows(t, "connect_tls"); len(rows) > 0; {
		r := rows[0]
		g := newRig(t, Limits{}, "api.example.com", "files.example.org:8443", "*.trusted.example")
		c, err := net.Dial("tcp", g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "CONNECT "+r.Input.Connect+" HTTP/1.1\r\nHost: "+r.Input.Connect+"\r\n\r\n")
		b := bufio.NewReader(c)
		resp, err := http.ReadResponse(b, &http.Request{Method: "CONNECT"})
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == 200 {
			first := []byte(r.Input.First)
			if len(first) == 0 {
				first = hello(r.Input.SNI, r.Input.Split)
			}
			_, _ = c.Write(first)
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			_, _ = b.ReadByte() // the server's answer, or the end
		}
		for end := time.Now().Add(time.Minute); len(g.codes()) == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if tries++; slices.Contains(g.codes(), "egress.late") && tries < 5 { // a busy machine was late itself
			_ = c.Close()
			_ = g.Close()
			continue
		}
		rows, tries = rows[1:], 0
		g.mu.Lock()
		went := len(g.went)
		g.mu.Unlock()
		switch r.Expect {
		case "allow", "fragmented":
			if codes := g.codes(); went == 0 || len(codes) != 1 || codes[0] != "" {
				t.Errorf("%s: %d connections, %q", r.ID, went, codes)
			}
		default:
			if codes := g.codes(); went > 0 || len(codes) != 1 || codes[0] == "" {
				t.Errorf("%s: %d connections, %q", r.ID, went, codes)
			}
		}
		_ = c.Close()
		_ = g.Close()
	}
}

// TestWeb makes requests on connections to one host: each is judged by itself.
func TestWeb(t *testing.T) {
	for _, row := range []struct {
		why, rule, request, want string
	}{
		{"the host that the connection is for", "api.example.com", "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "200"},
		{"another host at the same address", "api.example.com", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
			"egress.http.host"},
		{"another port of the host", "api.example.com", "GET / HTTP/1.1\r\nHost: api.example.com:22\r\n\r\n",
			"egress.http.host"},
		{"a whole URL for another host", "api.example.com",
			"GET http://evil.example/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "egress.http.host"},
		{"a tunnel inside", "api.example.com", "CONNECT api.example.com:80 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"egress.http"},
		{"a path that is allowed", "GET api.example.com/v1/*",
			"GET /v1/x?a=b HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "200"},
		{"a path that is not", "GET api.example.com/v1/*", "GET /v2/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"egress.request"},
		{"a path that climbs", "GET api.example.com/v1/*", "GET /v1/../v2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"egress.request"},
		{"a path that climbs in disguise", "GET api.example.com/v1/*",
			"GET /v1/%2e%2e/v2 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "egress.request"},
		{"a method that is not allowed", "GET api.example.com/v1/*", "DELETE /v1/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"egress.request"},
	} {
		g := newRig(t, Limits{}, row.rule)
		c := g.direct(t, "api.example.com", 80)
		_, _ = io.WriteString(c, strings.Replace(row.request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
		answer, _ := io.ReadAll(c)
		if !strings.Contains(string(answer), row.want) || row.want != "200" && len(g.went) > 0 {
			t.Errorf("%s: %q, went to %v", row.why, answer, g.went)
		}
	}
}

// TestCertificate reaches a host only where the certificate is the host's, also for a client that
// does not look.
// TestMethods: a fact has the method of a request that waldo read, and no word that the sandbox made up.
func TestMethods(t *testing.T) {
	g := newRig(t, Limits{}, "GET,POST,SELL api.example.com/v1/*")
	for _, line := range []string{"GET /v1/a", "POST /v1/a", "SELL /v1/a", "DELETE /v1/a"} {
		c, err := net.Dial("tcp", g.proxy)
		if err != nil {
			t.Fatal(err)
		}
		method, path, _ := strings.Cut(line, " ")
		_, _ = fmt.Fprintf(c, "%s http://api.example.com%s HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n", method, path)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = io.ReadAll(c)
		_ = c.Close()
	}
	got := []string{}
	for _, a := range g.told() {
		got = append(got, fmt.Sprint(a.Method, " ", a.Allowed, " ", a.Why))
	}
	want := []string{"GET true ", "POST true ", "OTHER true ", "DELETE false egress.request"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCertificate(t *testing.T) {
	for _, row := range []struct {
		why, host string
		other     bool
		want      string
	}{
		{"the host's own", "api.example.com", false, ""},
		{"a certificate of another name", "files.example.org", false, "egress.tls.certificate"},
		{"nobody vouches for it", "api.example.com", true, "egress.tls.certificate"},
	} {
		g := newRig(t, Limits{}, "api.example.com", "files.example.org")
		if row.other {
			_, g.dialer.Roots = certificate(t, "api.example.com")
		}
		c := tls.Client(g.direct(t, row.host, 443), &tls.Config{ServerName: row.host, InsecureSkipVerify: true})
		err := c.Handshake()
		if codes := g.codes(); (err == nil) != (row.want == "") || len(codes) != 1 || codes[0] != row.want {
			t.Errorf("%s: %v, %q", row.why, err, codes)
		}
	}
}

// TestPlain carries what is neither TLS nor HTTP, also where the server speaks first, and judges
// TLS and HTTP at any port, early or late.
func TestPlain(t *testing.T) {
	l := answering(t, func(c net.Conn) { _, _ = io.WriteString(c, "hi "); _, _ = io.Copy(c, c); _ = c.Close() })
	name := "evil.example"
	for _, row := range []struct {
		why   string
		waits bool // for the server
		words string
		want  string
		code  string
	}{
		{"text at once", false, "PING\r\n", "hi PING\r\n", ""},
		{"the server speaks first", true, "EHLO x\r\n", "hi EHLO x\r\n", ""},
		{"TLS for another name", false, string(hello(&name, 0)), "", "egress.tls.name"},
		{"TLS for another name, late", true, string(hello(&name, 0)), "hi ", "egress.late"},
		{"HTTP for another name", false, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403", "egress.http.host"},
		{"HTTP for another name, late", true, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "hi ", "egress.late"},
	} {
		talk := func() (string, []string) {
			g := newRig(t, Limits{}, "api.example.com:5000")
			g.raw = l
			c := g.direct(t, "api.example.com", 5000)
			greeting := make([]byte, 3)
			if row.waits {
				_, _ = io.ReadFull(c, greeting)
			}
			_, _ = io.WriteString(c, row.words)
			_ = c.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(c)
			return strings.Trim(string(greeting), "\x00") + string(answer), g.codes()
		}
		answer, codes := talk()
		// a busy machine was late itself
		for tries := 1; !row.waits && codes[len(codes)-1] == "egress.late" && tries < 5; tries++ {
			answer, codes = talk()
		}
		if !strings.Contains(string(answer), row.want) || codes[len(codes)-1] != row.code ||
			row.code != "" && strings.Contains(string(answer), "evil.example") && row.want != "403" {
			t.Errorf("%s: %q, %q", row.why, answer, codes)
		}
	}
}

// TestFence: once a run must have ended, its open connections send nothing more.
func TestFence(t *testing.T) {
	for _, over := range []bool{false, true} {
		g, dead := newRig(t, Limits{}, "api.example.com:5000"), atomic.Bool{}
		g.raw = answering(t, func(c net.Conn) { _, _ = io.WriteString(c, "hi "); _, _ = io.Copy(c, c); _ = c.Close() })
		g.Fence(func() bool { return !dead.Load() })
		c := g.direct(t, "api.example.com", 5000)
		if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		dead.Store(over)
		_, _ = io.WriteString(c, "late")
		_ = c.(*net.TCPConn).CloseWrite()
		if echo, _ := io.ReadAll(c); string(echo) != map[bool]string{false: "late"}[over] {
			t.Errorf("over: %v, sent: %q", over, echo)
		}
	}
}

// TestLimits ends what goes beyond them, and a sandbox within them notices nothing.
func TestLimits(t *testing.T) {
	get := func(g *rig) string {
		c, err := net.Dial("tcp", g.proxy)
		if err != nil {
			return "" // the reset was faster than we
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		b, _ := io.ReadAll(c)
		return string(b)
	}
	for _, row := range []struct {
		why    string
		limits Limits
		code   string
	}{
		{"one connection a minute", Limits{PerMin: 1}, "egress.limit.rate"},
		{"as many bytes as one answer", Limits{Bytes: 26}, "egress.limit.bytes"},
	} {
		g := newRig(t, row.limits, "api.example.com")
		if a := get(g); !strings.Contains(a, "200 OK") {
			t.Errorf("%s: control: %q", row.why, a)
		}
		if a := get(g); a != "" {
			t.Errorf("%s: the second went through: %q", row.why, a)
		}
		if codes := g.codes(); codes[len(codes)-1] != row.code {
			t.Errorf("%s: %q", row.why, codes)
		}
	}
	g := newRig(t, Limits{Conns: 1}, "api.example.com")
	held, err := net.Dial("tcp", g.proxy)
	if err != nil {
		t.Fatal(err)
	}
	soon := func(why string, ok func(answer string) bool) {
		a := get(g)
		for end := time.Now().Add(10 * time.Second); !ok(a) && time.Now().Before(end); a = get(g) {
			time.Sleep(50 * time.Millisecond)
		}
		if !ok(a) {
			t.Errorf("%s: %q", why, a)
		}
	}
	time.Sleep(50 * time.Millisecond)
	soon("two at a time", func(a string) bool { return a == "" })
	_ = held.Close()
	soon("one after the other", func(a string) bool { return strings.Contains(a, "200 OK") })
}

// TestPrivateAnswer is the rebinding wall: a name that is allowed and stands for a private address
// is reached where the operator has said that it is inside, and only there.
func TestPrivateAnswer(t *testing.T) {
	g := newRig(t, Limits{}, "inside.example.com")
	c := g.direct(t, "inside.example.com", 80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: inside.example.com\r\nConnection: close\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if codes := g.codes(); codes[len(codes)-1] != "egress.address" || len(g.went) != 0 {
		t.Errorf("%q %q, went to %v", answer, codes, g.went)
	}
	g = newRig(t, Limits{}, "inside.example.com") // the control
	g.policy.Rules[0].Internal = true
	c = g.direct(t, "inside.example.com", 80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: inside.example.com\r\nConnection: close\r\n\r\n")
	if answer, _ = io.ReadAll(c); !strings.Contains(string(answer), "200 OK") {
		t.Errorf("control: %q", answer)
	}
	for _, a := range []string{"127.0.0.1", "169.254.169.254", "fd00:ec2::254", "fe80::1", "::1"} {
		if g.policy.Address("inside.example.com", 80, netip.MustParseAddr(a)) == nil {
			t.Errorf("%s is inside", a)
		}
	}
}

// TestLocalhost: localhost in a rule means this machine, for any answer of a resolver.
func TestLocalhost(t *testing.T) {
	rules, err := ParseRules([]string{"localhost:4873"})
	if err != nil {
		t.Fatal(err)
	}
	var to []string
	d := &Dialer{Policy: &Policy{Rules: rules}, Resolver: outsideNames,
		Connect: func(_ context.Context, a netip.AddrPort) (net.Conn, error) {
			to = append(to, a.String())
			return nil, io.EOF
		}}
	for _, name := range []string{"localhost", "LOCALHOST."} {
		if _, err := d.Dial(t.Context(), name, 4873); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(to, []string{"127.0.0.1:4873", "[::1]:4873", "127.0.0.1:4873", "[::1]:4873"}) {
		t.Errorf("dialled %q", to)
	}
}

// answering is a server of this machine that does the same with every connection, until the test ends.
func answering(t testing.TB, each func(c net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go each(c)
		}
	}()
	return l.Addr().String()
}
