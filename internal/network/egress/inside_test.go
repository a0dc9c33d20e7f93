package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/detect/scrub"
	"waldo/internal/model/secret"
)

// client makes requests as a program in the sandbox does which trusts what the sandbox trusts.
func (g *rig) client(t testing.TB, h2 bool) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	return &http.Client{Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2,
			DisableCompression: true, DisableKeepAlives: true,
			DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
				host, port, why := ParseAuthority(addr)
				if why != nil {
					return nil, why
				}
				return g.direct(t, host, port), nil
			}}}
}

// ask makes one request and returns the answer's body, after the code of the refusal where there is one.
func (g *rig) ask(t testing.TB, h2 bool, method, url string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header = header; header == nil {
		r.Header = http.Header{}
	}
	if h := r.Header.Get("Host"); h != "" {
		r.Host = h
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		g.early = append(g.early, fmt.Sprint(h))
		return nil
	}}
	resp, err := g.client(t, h2).Do(r.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
	if err != nil {
		return nil, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, string(b) + " " + err.Error()
	}
	return resp, string(b)
}

// TestInside makes requests within TLS to a host of which a rule allows some.
func TestInside(t *testing.T) {
	for _, row := range []struct {
		why, method, url string
		header           http.Header
		want             string
	}{
		{"what is allowed", "GET", "https://api.example.com/v1/x?a=b%2Fc", nil, "hello from api.example.com"},
		{"with an escape that is needed", "GET", "https://api.example.com/v1/a%20b", nil, "hello from api.example.com"},
		{"another method", "DELETE", "https://api.example.com/v1/x", nil, "egress.request"},
		{"another method in a header", "POST", "https://api.example.com/v1/x",
			http.Header{"X-Http-Method-Override": {"DELETE"}}, "egress.request"},
		{"another path in a header", "GET", "https://api.example.com/v1/x", http.Header{"X-Original-Url": {"/v2"}},
			"egress.request"},
		{"another path", "GET", "https://api.example.com/v2/x", nil, "egress.request"},
		{"dot segments", "GET", "https://api.example.com/v1/../v2", nil, "egress.request"},
		{"dot segments, escaped", "GET", "https://api.example.com/v1/%2e%2e/v2", nil, "egress.request"},
		{"a slash, escaped", "GET", "https://api.example.com/v1/..%2fv2", nil, "egress.request"},
		{"escaped twice", "GET", "https://api.example.com/v1/%252e%252e/v2", nil, "egress.request"},
		{"a backslash, escaped", "GET", "https://api.example.com/v1/..%5cv2", nil, "egress.request"},
		{"parameters of a segment", "GET", "https://api.example.com/v1/..;/v2", nil, "egress.request"},
		{"an empty segment", "GET", "https://api.example.com/v1//x", nil, "egress.request"},
		{"a letter, escaped", "GET", "https://api.example.com/%761/x", nil, "egress.request"},
		{"NUL", "GET", "https://api.example.com/v1/%00", nil, "egress.request"},
		{"another host on the connection", "GET", "https://api.example.com/v1/x", http.Header{"Host": {"evil.example"}},
			"egress.http.host"},
	} {
		for _, h2 := range []bool{false, true} {
			g := newRig(t, Limits{}, "GET,POST api.example.com/v1/*")
			_, got := g.ask(t, h2, row.method, row.url, row.header, "")
			if !strings.Contains(got, row.want) || row.want[0] == 'e' && len(g.went) > 0 {
				t.Errorf("%s, h2 %v: %q, went to %v", row.why, h2, got, g.went)
			}
		}
	}
	g := newRig(t, Limits{}, "GET api.example.com/v1/*", "a.trusted.example")
	if resp, got := g.ask(t, true, "GET", "https://api.example.com/v1/x", nil, ""); resp == nil || resp.ProtoMajor != 2 {
		t.Errorf("HTTP/2 is not spoken to the sandbox: %q", got)
	}
	// A host that nothing must look into keeps its TLS: the sandbox's authority is not in it.
	if _, got := g.ask(t, false, "GET", "https://a.trusted.example/", nil, ""); !strings.Contains(got,
		"unknown authority") {
		t.Errorf("a host that is carried as it is: %q", got)
	}
	c := tls.Client(g.direct(t, "a.trusted.example", 443), &tls.Config{ServerName: "a.trusted.example", RootCAs: g.roots})
	if err := c.Handshake(); err != nil {
		t.Errorf("a host that is carried as it is: %v", err)
	}
}

// TestInsideCertificate: waldo verifies the host where the sandbox cannot.
func TestInsideCertificate(t *testing.T) {
	for _, good := range []bool{true, false} {
		g := newRig(t, Limits{}, "GET api.example.com/*")
		if !good {
			_, g.transport.TLSClientConfig.RootCAs = certificate(t, "api.example.com")
		}
		resp, got := g.ask(t, false, "GET", "https://api.example.com/", nil, "")
		if good != (resp != nil && resp.StatusCode == 200) || !good && (resp.StatusCode != 502 || len(g.hosts) > 0) {
			t.Errorf("a certificate that somebody vouches for: %v, and %q", good, got)
		}
	}
}

const hidden = "s3cr3t/with+odd=letters"

func brokered(as AuthScheme, field string) Credential {
	return Credential{Name: "token", Placeholder: NewPlaceholder(), Host: "api.example.com", Port: 443,
		Methods: []string{"GET", "POST"}, Paths: []string{"/repos/*"},
		As: as, Field: field, Region: "us-east-1", Service: "execute-api",
		Value: func() (secret.Value, error) { return secret.NewValue(hidden), nil },
		KeyID: func() (secret.Value, error) { return secret.NewValue("AKIDEXAMPLE"), nil }}
}

func credentialRig(t testing.TB, c Credential) *rig {
	return newRigWith(t, Limits{}, Options{Credentials: []Credential{c}}, "api.example.com",
		"a.trusted.example", "raw.example.org:5000", "*.evil.example")
}

// TestCredential: the secret is added in its place, and the client's own value is removed.
func TestCredential(t *testing.T) {
	for _, row := range []struct {
		as         AuthScheme
		field      string
		name, want string // a header, and its prefix
	}{
		{Bearer, "", "Authorization", "Bearer " + hidden},
		{Header, "X-Api-Key", "X-Api-Key", hidden},
		{Basic, "me", "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+hidden))},
		{SigV4, "", "Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"},
		{Query, "key", "", ""},
	} {
		c := brokered(row.as, row.field)
		g := credentialRig(t, c)
		for _, sent := range []http.Header{
			nil, {"Authorization": {"Bearer " + c.Placeholder, "Bearer other"}, "X-Api-Key": {c.Placeholder},
				"X_api_key": {c.Placeholder}},
		} {
			if row.as != Header && sent != nil {
				sent = http.Header{"Authorization": sent["Authorization"]}
			}
			target := "https://api.example.com/repos/x?a=b"
			if row.as == Query && sent != nil {
				target += "&key=" + c.Placeholder + "&%6bEY=other"
			}
			if _, got := g.ask(t, sent != nil, "POST", target, sent.Clone(), "body"); !strings.HasPrefix(got, "hello") {
				t.Errorf("%d: %q", row.as, got)
				continue
			}
			head, line := g.heads[len(g.heads)-1], g.urls[len(g.urls)-1]
			if row.as == Query && line != "POST /repos/x?a=b&key="+url.QueryEscape(hidden) ||
				row.as != Query && line != "POST /repos/x?a=b" {
				t.Errorf("%d: %q", row.as, line)
			}
			if row.name != "" && (len(head[row.name]) != 1 || !strings.HasPrefix(head[row.name][0], row.want)) {
				t.Errorf("%d: %q, wanted %q", row.as, head[row.name], row.want)
			}
			if all := fmt.Sprint(head); strings.Contains(all, c.Placeholder) || strings.Contains(all, "other") {
				t.Errorf("%d: what the client wrote went out: %s", row.as, all)
			}
		}
	}
}

// TestPlaceholder sends the placeholder where the secret does not belong: nothing goes out, and the
// fact does not hold the word.
func TestPlaceholder(t *testing.T) {
	c := brokered(Bearer, "")
	p := c.Placeholder
	for _, row := range []struct {
		why, method, url string
		header           http.Header
		body             string
	}{
		{"another path of the host", "GET", "https://api.example.com/user",
			http.Header{"Authorization": {"Bearer " + p}}, ""},
		{"another method", "DELETE", "https://api.example.com/repos/x", http.Header{"Authorization": {"Bearer " + p}}, ""},
		{"a path that climbs out", "GET", "https://api.example.com/repos/../user",
			http.Header{"Authorization": {"Bearer " + p}}, ""},
		{"another header", "GET", "https://api.example.com/repos/x", http.Header{"X-Other": {p}}, ""},
		{"the query", "GET", "https://api.example.com/repos/x?q=" + p, nil, ""},
		{"the path, escaped", "GET", "https://api.example.com/repos/%77" + p[1:], nil, ""},
		{"the body", "POST", "https://api.example.com/repos/x", nil, strings.Repeat("x", 100_000) + p},
		{"the body in base64", "POST", "https://api.example.com/repos/x", nil,
			base64.StdEncoding.EncodeToString([]byte("user:" + p + "!"))},
		{"plain HTTP to the host", "GET", "http://api.example.com/repos/x",
			http.Header{"Authorization": {"Bearer " + p}}, ""},
		{"plain HTTP to another host", "GET", "http://a.trusted.example/repos/x",
			http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+p))}}, ""},
		{"the body of plain HTTP", "POST", "http://a.trusted.example/", nil, p},
	} {
		g := credentialRig(t, c)
		resp, got := g.ask(t, false, row.method, row.url, row.header, row.body)
		if !strings.Contains(got, "egress.secret.placeholder") || resp.StatusCode != 403 {
			t.Errorf("%s: %q", row.why, got)
		}
		for _, a := range g.told() {
			if strings.Contains(fmt.Sprint(a), p) || a.Allowed && row.body == "" {
				t.Errorf("%s: %+v", row.why, a)
			}
		}
		if codes := g.codes(); codes[len(codes)-1] != "egress.secret.placeholder" {
			t.Errorf("%s: %q", row.why, codes)
		}
		for _, h := range g.heads {
			if strings.Contains(fmt.Sprint(h), hidden) && row.body == "" {
				t.Errorf("%s: the secret went out", row.why)
			}
		}
	}
	for _, way := range []func(g *rig) string{
		func(g *rig) string {
			_ = g.direct(t, p+".evil.example", 80)
			for end := time.Now().Add(time.Minute); len(g.codes()) == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			return "egress.secret.placeholder"
		},
		func(g *rig) string {
			if _, ok := g.names.address(p + ".evil.example"); ok {
				return "an address for it"
			}
			g.attempts.refused(p+".evil.example", 0, errPlaceholder)
			return "egress.secret.placeholder"
		},
	} {
		g := credentialRig(t, c)
		if _, ok := g.names.address("x.evil.example"); !ok {
			t.Fatal("control: no address for an allowed name")
		}
		if want, codes := way(g), g.codes(); len(codes) != 1 || codes[0] != want ||
			g.told()[0].Host != "(placeholder).evil.example" || len(g.went) > 0 {
			t.Errorf("the name of a host: %+v", g.told())
		}
	}
	g := credentialRig(t, c) // the control: a request without it
	if _, got := g.ask(t, false, "GET", "https://api.example.com/user", http.Header{"Authorization": {"Bearer mine"}},
		""); !strings.HasPrefix(got, "hello") || len(g.heads[0]["Authorization"]) > 0 {
		t.Errorf("%q, with %q", got, g.heads)
	}
}

// TestPlaceholderRaw says the placeholder on a connection that is neither TLS nor HTTP.
func TestPlaceholderRaw(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var heard []string
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			_ = c.Close()
			if heard = append(heard, string(b)); string(b) == "end" {
				return
			}
		}
	})
	c := brokered(Bearer, "")
	for _, row := range []struct {
		first, then string
		wait        time.Duration
		leaks       bool
	}{{"PING ", "nothing", 0, false}, {"PING " + c.Placeholder, "", 0, true},
		{"PING ", c.Placeholder, 20 * time.Millisecond, true},
		{"PING " + c.Placeholder[:9], c.Placeholder[9:], 2 * listening, true},
		{"", c.Placeholder, 2 * listening, true}} {
		g := credentialRig(t, c)
		g.raw = l.Addr().String()
		sb := g.direct(t, "raw.example.org", 5000)
		_, _ = io.WriteString(sb, row.first)
		time.Sleep(row.wait)
		_, _ = io.WriteString(sb, row.then)
		_ = sb.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(sb)
		codes := g.codes()
		if leaks := codes[len(codes)-1] == "egress.secret.placeholder"; leaks != row.leaks {
			t.Errorf("%q %q: %q", row.first, row.then, codes)
		}
	}
	end, err := net.Dial("tcp", l.Addr().String()) // it is accepted after all others
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(end, "end")
	_ = end.Close()
	all.Wait()
	for _, got := range heard {
		if strings.Contains(got, c.Placeholder) {
			t.Errorf("%q arrived", got)
		}
	}
}

// TestPlaceholderEnds: after a placeholder nothing more is read, even by a reader that asks again.
func TestPlaceholderEnds(t *testing.T) {
	c := brokered(Bearer, "")
	long := strings.Repeat("-", 200) // longer than the scan remembers: no part of a placeholder stays
	for _, row := range []struct{ second, want string }{
		{"nothing", "first,nothing" + long + "last"}, {c.Placeholder, "first,"},
	} {
		pieces := []string{"first,", row.second, long, "last"}
		w := &watched{ReadCloser: io.NopCloser(readFunc(func(b []byte) (int, error) {
			if len(pieces) == 0 {
				return 0, io.EOF
			}
			n := copy(b, pieces[0])
			pieces = pieces[1:]
			return n, nil
		})), m: newMarks([]Credential{c})}
		got := ""
		for range 5 {
			b := make([]byte, 4096)
			n, _ := w.Read(b)
			got += string(b[:n])
		}
		if got != row.want {
			t.Errorf("%q was read, wanted %q", got, row.want)
		}
		if _, err := w.Read(make([]byte, 1)); row.second != "nothing" && !errors.Is(err, errPlaceholder) {
			t.Errorf("at last: %v", err)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// TestEcho: a host that echoes the secret does not disclose it to the sandbox.
func TestEcho(t *testing.T) {
	for _, row := range []struct {
		why    string
		answer http.HandlerFunc
		want   string
	}{
		{"a body", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "you sent %s.", r.Header["Authorization"])
		}, "you sent [Bearer ***********************]."},
		{"in base64", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<"+base64.StdEncoding.EncodeToString([]byte(hidden))+">")
		}, "<" + strings.Repeat("*", 31) + "=>"},
		{"in capitals, as a code of hexadecimal, in lines", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<"+strings.ToUpper(hidden)+">\n<"+strings.ToUpper(hex.EncodeToString([]byte(hidden)))+">\n")
			e := base64.StdEncoding.EncodeToString([]byte("key " + hidden))
			_, _ = io.WriteString(w, "{"+e[:11]+"\n"+e[11:22]+"\n"+e[22:]+"}")
		}, "<" + strings.Repeat("*", 23) + ">\n<" + strings.Repeat("*", 46) + ">\n{a2V5I" + strings.Repeat("*", 33) + "}"},
		{"byte by byte", func(w http.ResponseWriter, _ *http.Request) {
			for _, c := range "<" + hidden + ">" {
				_, _ = io.WriteString(w, string(c))
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}, "<" + strings.Repeat("*", len(hidden)) + ">"},
		{"the begin of it alone", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, hidden[:7]) },
			hidden[:7]},
		{"a header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Echo", hidden)
			w.Header().Set(url.QueryEscape("X-"+"s3cr3t"), "1")
		}, ""},
		{"before the answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", hidden)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			_, _ = io.WriteString(w, "fine")
		}, "fine"},
		{"after the answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Last")
			_, _ = io.WriteString(w, "fine")
			w.Header().Set("X-Last", hidden)
		}, "fine"},
		{"packed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "packed")
		}, "egress.secret.encoding"},
	} {
		for _, h2 := range []bool{false, true} {
			g := credentialRig(t, brokered(Bearer, ""))
			g.answer = row.answer
			resp, got := g.ask(t, h2, "GET", "https://api.example.com/repos/x",
				http.Header{"Range": {"bytes=0-3"}, "Accept-Encoding": {"gzip"}}, "")
			if !strings.Contains(got, row.want) || resp == nil {
				t.Errorf("%s: %q", row.why, got)
				continue
			}
			if all := fmt.Sprint(resp.Header, resp.Trailer, got, g.early); strings.Contains(all, hidden) ||
				row.why == "a header" && resp.Header.Get("X-Echo") != strings.Repeat("*", len(hidden)) {
				t.Errorf("%s: the sandbox has %s", row.why, all)
			}
			if h := g.heads[0]; h.Get("Range") != "" || h.Get("Accept-Encoding") != "identity" || h.Get("Authorization") == "" {
				t.Errorf("%s: %v", row.why, h)
			}
		}
	}
}

// TestSocketInside speaks a websocket within TLS that waldo looks into.
func TestSocketInside(t *testing.T) {
	g := credentialRig(t, brokered(Bearer, ""))
	g.answer = func(w http.ResponseWriter, r *http.Request) {
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 "+hidden+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Ext: "+
			r.Header.Get("Sec-Websocket-Extensions")+"\r\n\r\n")
		line, _ := b.ReadString('\n')
		_, _ = io.WriteString(c, "\x81\x2aecho "+line+r.Header.Get("Authorization")+"\n\x81\x2a"+hidden[:9])
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	c := tls.Client(g.direct(t, "api.example.com", 443), &tls.Config{ServerName: "api.example.com", RootCAs: pool})
	_, _ = io.WriteString(c, "GET /repos/ws HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: eHh4\r\n"+
		"Sec-WebSocket-Version: 13\r\n\r\n")
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, nil)
	if err != nil || resp.Status != "101 Switching Protocols" || resp.Header.Get("X-Ext") != "" {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(c, "frame\n")
	if got, _ := io.ReadAll(b); string(got) != "\x81\x2aecho frame\nBearer "+strings.Repeat("*", len(hidden))+"\n" {
		t.Errorf("%q", got)
	}
}

// TestSource: a secret that changes is the new one at the next request, and one that is gone stops it.
func TestSource(t *testing.T) {
	c, now := brokered(Bearer, ""), "first-9fQ2vXz7Lw3KpT"
	c.Value = func() (secret.Value, error) {
		if now == "" {
			return secret.Value{}, errors.New("gone")
		}
		return secret.NewValue(now), nil
	}
	g := credentialRig(t, c)
	for _, want := range []string{"first-9fQ2vXz7Lw3KpT", "second-8hR5bYc1Nd6JmU"} {
		now = want
		_, got := g.ask(t, false, "GET", "https://api.example.com/repos/x", nil, "")
		if h := g.heads[len(g.heads)-1].Get("Authorization"); h != "Bearer "+want {
			t.Errorf("%q: %q %q", want, h, got)
		}
	}
	for bad, code := range map[string]string{
		"": "missing", "first-9fQ2vXz7Lw3KpT\r\nlines": "missing", "first-9fQ2vXz7Lw3KpT\x01": "missing",
		"Summer2024!": "weak",
	} {
		now = bad
		if _, got := g.ask(t, false, "GET", "https://api.example.com/repos/x", nil, ""); !strings.Contains(got,
			"egress.secret."+code) || len(g.heads) != 2 {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

// TestSignedBody: a body is hashed if its hash must come first; an unsignable request is refused.
func TestSignedBody(t *testing.T) {
	for _, row := range []struct{ said, body, want string }{
		{"", "a=b", "hello"}, {"UNSIGNED-PAYLOAD", "a=b", "hello"}, {strings.Repeat("0", 64), "a=b", "hello"},
		{"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "3;chunk-signature=0\r\na=b\r\n", "egress.secret.signature"},
		{"some", "a=b", "egress.secret.signature"},
	} {
		g := credentialRig(t, brokered(SigV4, ""))
		h := http.Header{}
		if row.said != "" {
			h.Set("X-Amz-Content-Sha256", row.said)
		}
		if _, got := g.ask(t, false, "POST", "https://api.example.com/repos/x", h,
			row.body); !strings.Contains(got, row.want) {
			t.Errorf("%q: %q", row.said, got)
		}
	}
}

// TestCredentialChecks: one that could be guessed, or that belongs to no request, makes no way out.
func TestCredentialChecks(t *testing.T) {
	d := &Dialer{Policy: policyOf(t, "api.example.com")}
	good := Options{Credentials: []Credential{brokered(Bearer, "")}}
	if _, err := NewServer(d, good); err != nil {
		t.Fatalf("control: %v", err)
	}
	for why, change := range map[string]func(o *Options){
		"a placeholder that could be guessed": func(o *Options) { o.Credentials[0].Placeholder = "token" },
		"no host":                             func(o *Options) { o.Credentials[0].Host = "" },
		"a host that no rule allows":          func(o *Options) { o.Credentials[0].Host = "evil.example" },
		"a port that no rule allows":          func(o *Options) { o.Credentials[0].Port = 8443 },
		"no method":                           func(o *Options) { o.Credentials[0].Methods = nil },
		"no path":                             func(o *Options) { o.Credentials[0].Paths = nil },
		"no way in":                           func(o *Options) { o.Credentials[0].As = 0 },
		"no header":                           func(o *Options) { o.Credentials[0].As = Header },
		"no region":                           func(o *Options) { o.Credentials[0].As, o.Credentials[0].Region = SigV4, "" },
	} {
		o := Options{Credentials: []Credential{brokered(Bearer, "")}}
		change(&o)
		if _, err := NewServer(d, o); err == nil {
			t.Error(why)
		}
	}
}

func policyOf(t testing.TB, lines ...string) *Policy {
	rules, err := ParseRules(lines)
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{Rules: rules}
}

// TestElsewhere asks another host that is looked into for the same path: it gets no secret.
func TestElsewhere(t *testing.T) {
	g := newRigWith(t, Limits{}, Options{Credentials: []Credential{brokered(Bearer, "")}},
		"api.example.com", "GET a.trusted.example")
	for host, want := range map[string]string{"api.example.com": "Bearer " + hidden, "a.trusted.example": ""} {
		_, got := g.ask(t, false, "GET", "https://"+host+"/repos/x", nil, "")
		if h := g.heads[len(g.heads)-1].Get("Authorization"); h != want || !strings.HasPrefix(got, "hello from "+host) {
			t.Errorf("%s: %q, and %q went out", host, got, h)
		}
	}
}

// FuzzResponseScrubber: for any split of the stream, no spelling of the secret passes and all other bytes do.
func FuzzResponseScrubber(f *testing.F) {
	f.Add([]byte("you sent "+hidden+"."), uint8(3))
	f.Add([]byte(hidden[:7]+hidden), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, step uint8) {
		r := newScrubber([]string{hidden}).body(io.NopCloser(&stepped{body, int(step)%7 + 1}), scrub.Lines, nil)
		got, err := io.ReadAll(r)
		if err != nil || len(got) != len(body) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(body), err)
		}
		for _, s := range []string{hidden, base64.StdEncoding.EncodeToString([]byte(hidden)), hex.EncodeToString([]byte(hidden))} {
			if strings.Contains(strings.ToLower(string(got)), strings.ToLower(s)) {
				t.Errorf("%q holds %q", got, s)
			}
		}
		for i := range got {
			if got[i] != body[i] && got[i] != '*' {
				t.Fatalf("%q of %q", got, body)
			}
		}
	})
}

// stepped gives out a few bytes at a time.
type stepped struct {
	b []byte
	n int
}

func (s *stepped) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

// FuzzPlainPath: an accepted path never climbs to a parent, after any number of decodings.
func FuzzPlainPath(f *testing.F) {
	for _, s := range []string{"/v1/a%20b", "/v1/..%2f", "/%252e", `/a\b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		p, ok := plainPath(target)
		if !ok || !strings.HasPrefix(p, "/") {
			return
		}
		again, err := url.PathUnescape(p)
		if err != nil || again != p {
			t.Errorf("%q is %q, and then %q", target, p, again)
		}
		if clean := path.Clean(p); clean != p && clean+"/" != p || strings.ContainsAny(p, "\\;\x00") {
			t.Errorf("%q is %q", target, p)
		}
	})
}

// TestPlaceholderEarly: a host that answers before it has read gets nothing either.
func TestPlaceholderEarly(t *testing.T) {
	c := brokered(Bearer, "")
	for end, want := range map[string]string{c.Placeholder: "egress.secret.placeholder", "": "early"} {
		g := credentialRig(t, c)
		came := make(chan struct{}, 1)
		g.answer = func(w http.ResponseWriter, _ *http.Request) {
			came <- struct{}{}
			_, _ = io.WriteString(w, "early")
		}
		const most = 50_000
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", most)), late{came, strings.NewReader(end)})
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.example.com/repos/x", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(most + len(end))
		resp, err := g.client(t, true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(got), want) || want != "early" && len(g.heads) > 0 {
			t.Errorf("%q: %q, %v, %d requests went out", end, got, err, len(g.heads))
		}
	}
}

// late gives what it reads when a request has arrived, or after a while.
type late struct {
	came chan struct{}
	io.Reader
}

func (l late) Read(b []byte) (int, error) {
	select {
	case <-l.came:
	case <-time.After(time.Second):
	}
	return l.Reader.Read(b)
}
