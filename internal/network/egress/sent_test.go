package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// sentPieces are seeds for the targets of FuzzSent: forms that parsers read in two ways.
var sentPieces = []string{
	"/v1/x#/../../admin", "http://api.example.com/v1/x#/../../admin?all=1", "/v1/%2e%2e/admin", "/v1/..\\admin", "/v1/x?#",
	"/v1/a|b^`{}\"<>", "/v1/é%c3%a9", "/v1//x", "//v1/x", "/v1/x?", "/v1/x??a=b&&c", "/health", "*",
	"http://api.example.com", "http://api.example.com?x=/v1/", "/v1/%zz", "/v1/;a", "/v1/@:&=+[]~",
}

// FuzzSent states that the checked request is sent byte for byte: a request is parsed as egress parses it, checked,
// and written.
func FuzzSent(f *testing.F) {
	for _, s := range sentPieces {
		f.Add(s)
	}
	p := policyOf(f, "GET api.example.com/v1/*", "GET api.example.com/health", "files.example.org")
	f.Fuzz(func(t *testing.T, target string) {
		for _, host := range []string{"api.example.com", "files.example.org"} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: " +
				host + "\r\n\r\n")))
			if err != nil {
				return
			}
			judged, why := originTarget(r, Target{Scheme: "http", Host: host, Port: 80})
			if why == nil {
				why = p.request(r.Method, judged)
			}
			if why != nil {
				continue
			}
			var b bytes.Buffer
			if err := (&http.Request{Method: r.Method, URL: judged.url(), Host: judged.Authority()}).Write(&b); err != nil {
				t.Fatalf("%q: %v", target, err)
			}
			line, _, _ := strings.Cut(b.String(), "\r\n")
			if want := "GET " + judged.Path + " HTTP/1.1"; line != want || strings.Contains(line, "#") {
				t.Errorf("%q was judged as %q and is sent as %q", target, judged.Path, line)
			}
			sent, err := http.ReadRequest(bufio.NewReader(&b))
			if err != nil || sent.Host != host {
				t.Fatalf("%q: %v, for %v", target, err, sent)
			}
			if plain, err := url.PathUnescape(strings.SplitN(sent.RequestURI, "?", 2)[0]); host == "api.example.com" &&
				(err != nil || plain != "/health" && !strings.HasPrefix(plain, "/v1/") || strings.Contains(plain+"/", "/../")) {
				t.Errorf("%q: %q is under no rule", target, sent.RequestURI)
			}
		}
	})
}

// say speaks to the proxy and returns the first line of the answer.
func (g *rig) say(t *testing.T, text string) string {
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

// TestSent: a host with path rules gets exactly the checked request.
func TestSent(t *testing.T) {
	for _, row := range []struct{ target, sent, code string }{
		{"/v1/x", "GET /v1/x", ""},
		{"/v1/x?a=b", "GET /v1/x?a=b", ""},
		{"/v1/a|b", "GET /v1/a%7Cb", ""},
		{"http://api.example.com/v1/x", "GET /v1/x", ""},
		{"/v1/x#/../../admin", "", "egress.url.fragment"},
		{"http://api.example.com/v1/x#/../../admin?all=1", "", "egress.url.fragment"},
		{"/v1/x%23/../../admin", "", "egress.request"},
	} {
		for _, proxy := range []bool{false, true} {
			target := row.target
			if proxy && strings.HasPrefix(target, "/") {
				target = "http://api.example.com" + target
			}
			g := newRig(t, Limits{}, "GET api.example.com/v1/*")
			text := "GET " + target + " HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n"
			if proxy {
				_ = g.say(t, text)
			} else {
				c := g.direct(t, "api.example.com", 80)
				_, _ = io.WriteString(c, text)
				_, _ = io.ReadAll(c)
			}
			if codes := g.codes(); !slices.Equal(codes, []string{row.code}) || strings.Join(g.urls, " ") != row.sent {
				t.Errorf("%q, proxy %v: %q, the host was asked %q", target, proxy, codes, g.urls)
			}
		}
	}
}

// TestOverrides: no header or parameter makes of a request that was judged another one.
func TestOverrides(t *testing.T) {
	for head, code := range map[string]string{
		"":                                "",
		"X-Other: DELETE\r\n":             "",
		"X-HTTP-Method-Override: PUT\r\n": "egress.request",
		"X-HTTP-Method-Override:\r\nX-HTTP-Method-Override: PUT\r\n": "egress.request",
		"X_HTTP_Method_Override: PUT\r\n":                            "egress.request",
		"X.HTTP.Method.Override: PUT\r\n":                            "egress.request",
		"X-HTTP~Method!Override: PUT\r\n":                            "egress.request",
		"X.Other.Method: PUT\r\n":                                    "",
		"x-http_method: PUT\r\n":                                     "egress.request",
		"X-Method: PUT\r\n":                                          "egress.request",
		"X_Original_URL: /admin\r\n":                                 "egress.request",
		"X-Original-URI: /admin\r\n":                                 "egress.request",
		"X-Override-URL: /admin\r\n":                                 "egress.request",
		"X-Rewrite-Url: /admin\r\n":                                  "egress.request",
	} {
		for _, rule := range []string{"GET api.example.com/v1/*", "api.example.com"} {
			want := code
			if rule == "api.example.com" {
				want = "" // every request of this host is allowed
			}
			g := newRig(t, Limits{}, rule)
			_ = g.say(t, "GET http://api.example.com/v1/x HTTP/1.1\r\nHost: api.example.com\r\n"+head+"\r\n")
			if codes := g.codes(); !slices.Equal(codes, []string{want}) || want != "" && len(g.urls) > 0 {
				t.Errorf("%q under %q: %q, the host was asked %q", head, rule, codes, g.urls)
			}
		}
	}
	for query, code := range map[string]string{
		"method=PUT": "", "_method=PUT": "egress.request", "a=b&%5fMethod=PUT": "egress.request",
	} {
		g := newRig(t, Limits{}, "GET api.example.com/v1/*")
		if _ = g.say(t, "GET http://api.example.com/v1/x?"+query+
			" HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); !slices.Equal(g.codes(), []string{code}) {
			t.Errorf("%q: %q", query, g.codes())
		}
	}
}

// TestAnonymous: at the host of a secret, at every port that waldo reads, nothing but the secret says who asks.
// At another host what a program says stays.
func TestAnonymous(t *testing.T) {
	mine := http.Header{
		"Cookie": {"a=mine"}, "Private-Token": {"mine"}, "private_token": {"mine"}, "X.Api.Key": {"mine"},
		"X-Api-Key": {"mine"}, "X-Other": {"stays"},
	}
	const query = "?a=b&access_token=mine&%61pi_key=mine&c=d"
	for _, row := range []struct{ url, want, authorization string }{
		{"https://api.example.com/repos/x", "POST /repos/x?a=b&c=d", "Bearer " + hidden},
		{"https://api.example.com/other", "POST /other?a=b&c=d", ""},
		{"http://api.example.com/repos/x", "POST /repos/x?a=b&c=d", ""},
		{"http://a.trusted.example/repos/x", "POST /repos/x" + query, "Bearer mine"},
	} {
		g := credentialRig(t, brokered(Bearer, ""))
		head := mine.Clone()
		head.Set("Authorization", "Bearer mine")
		_, got := g.ask(t, false, "POST", row.url+query, head, "")
		if !strings.HasPrefix(got, "hello") || len(g.urls) != 1 || g.urls[0] != row.want ||
			g.heads[0].Get("Authorization") != row.authorization {
			t.Errorf("%s: %q, asked %q as %q", row.url, got, g.urls, g.heads[0].Get("Authorization"))
			continue
		}
		all := fmt.Sprint(g.heads[0])
		if kept := strings.Count(all, "mine"); kept > 0 != (row.authorization == "Bearer mine") || kept > 0 && kept != 6 ||
			!strings.Contains(all, "stays") {
			t.Errorf("%s: the host got %s", row.url, all)
		}
	}
}

// TestTLSPorts: at a port that is for TLS nothing goes out in the clear.
func TestTLSPorts(t *testing.T) {
	for target, code := range map[string]string{
		"http://api.example.com/": "", "http://api.example.com:443/": "egress.tls",
		"http://api.example.com:8443/": "egress.tls",
	} {
		g := newRig(t, Limits{}, "api.example.com", "api.example.com:8443")
		if _ = g.say(t, "GET "+target+" HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); !slices.Equal(g.codes(),
			[]string{code}) || (len(g.went) > 0) != (code == "") {
			t.Errorf("%s: %q, went to %v", target, g.codes(), g.went)
		}
	}
	for target, code := range map[string]string{"/": "", "http://api.example.com:443/": "egress.http.host"} {
		g := newRig(t, Limits{}, "GET api.example.com")
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(g.Trust())
		c := tls.Client(g.direct(t, "api.example.com", 443), &tls.Config{ServerName: "api.example.com", RootCAs: pool})
		_, _ = io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
		if _, _ = io.ReadAll(c); !slices.Equal(g.codes(), []string{code}) || (len(g.went) > 0) != (code == "") {
			t.Errorf("%s within TLS: %q, went to %v", target, g.codes(), g.went)
		}
	}
}

// TestHeld: bodies that must be held wait for room, which is one for all connections of a sandbox.
func TestHeld(t *testing.T) {
	var r room
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if !r.take(ctx, maxHeld) || r.take(ctx, 1) {
		t.Error("there is room for one body of all bytes, and then for none")
	}
	if r.give(1); !r.take(t.Context(), 1) {
		t.Error("what was given back is free")
	}
	g := credentialRig(t, brokered(SigV4, ""))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	open := func() *tls.Conn {
		c := tls.Client(g.direct(t, "api.example.com", 443), &tls.Config{ServerName: "api.example.com", RootCAs: pool})
		_, _ = fmt.Fprintf(c, "POST /repos/x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: %d\r\n\r\n", maxSigned)
		return c
	}
	used := func() int64 {
		g.held.mu.Lock()
		defer g.held.mu.Unlock()
		return g.held.used
	}
	wait := func(want int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); used() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held, want %d", used(), want)
			}
		}
	}
	first, _ := open(), open()
	wait(maxHeld)
	third := open()
	_ = third.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); err == nil || used() != maxHeld {
		t.Errorf("the third did not wait: %v, %d bytes are held", err, used())
	}
	_, _ = first.Write(make([]byte, maxSigned))
	if resp, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("the first: %v %v", resp, err)
	}
	wait(maxHeld) // the third has come
	_ = g.Close()
	if wait(0); len(g.urls) != 1 {
		t.Errorf("%d requests went out", len(g.urls))
	}
}

// TestFlying: so many requests at a time go out of a sandbox as connections may, over HTTP/2 too.
func TestFlying(t *testing.T) {
	g := newRig(t, Limits{Conns: 2}, "GET api.example.com")
	more := make(chan bool)
	g.answer = func(http.ResponseWriter, *http.Request) { <-more }
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.Trust())
	c := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool},
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return g.direct(t, "api.example.com", 443), nil
			}}}
	got := make(chan int, 3)
	for range 3 {
		go func() {
			resp, err := c.Get("https://api.example.com/x")
			if err != nil {
				got <- 0
				return
			}
			_ = resp.Body.Close()
			got <- resp.StatusCode
		}()
	}
	if code := <-got; code != http.StatusForbidden {
		t.Errorf("the one too many: %d", code)
	}
	close(more)
	for range 2 {
		if code := <-got; code != 200 {
			t.Errorf("control: %d", code)
		}
	}
}

// TestNamedAddress: an address in a rule is open at the ports of that rule, for any name that resolves to it.
func TestNamedAddress(t *testing.T) {
	p := policyOf(t, "127.0.0.1:5432", "other.example.com:80", "other.example.com:5432")
	if why := p.Address("other.example.com", 5432, netip.MustParseAddr("127.0.0.1")); why != nil {
		t.Errorf("control: %v", why)
	}
	if why := p.Address("other.example.com", 80, netip.MustParseAddr("127.0.0.1")); why == nil ||
		why.Code != "egress.address" {
		t.Errorf("another port: %v", why)
	}
}

// TestTwoNames: a ClientHello with two server names is refused.
func TestTwoNames(t *testing.T) {
	name := "api.example.com"
	b := hello(&name, 0)
	at := 5 + 4 + 2 + 32 + 1 + 2 + 2 + 2 // where the extensions begin, after their length
	ext := slices.Clone(b[at+2:])
	if got, _, why := serverName(b); got != name || why != nil || len(ext) != 4+2+3+len(name) {
		t.Fatalf("control: %q %v", got, why)
	}
	for _, second := range []string{name, "evi.example.com"} {
		two := append(slices.Clone(b), strings.Replace(string(ext), name, second, 1)...)
		for _, n := range []int{3, 7, at} { // record, message, extensions
			v := int(two[n])<<8 | int(two[n+1]) + len(ext)
			two[n], two[n+1] = byte(v>>8), byte(v)
		}
		if got, more, why := serverName(two); why == nil || why.Code != "egress.tls" || more {
			t.Errorf("%s and %s: %q %v %v", name, second, got, more, why)
		}
	}
}
