package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
)

// world is an outside of a test's own: names, their addresses, and one server behind all of them.
type world struct {
	t       *testing.T
	names   map[string][]string // the answers of DNS, one for each question; the last one stays
	dialled []string
	server  *httptest.Server
	creds   []egress.Credential
	fetcher *Fetcher
}

const public = "93.184.216.34"

// newWorld has two public hosts, one private and one that changes its address.
func newWorld(t *testing.T, h http.HandlerFunc) *world {
	w := &world{t: t, names: map[string][]string{"a.example": {public}, "b.example": {public},
		"example.com": {public}, "inner.example": {"10.0.0.1"},
		"rebind.example": {public, "127.0.0.1"}, "meta.example": {"169.254.169.254"}}}
	w.server = httptest.NewServer(h)
	t.Cleanup(w.server.Close)
	w.fetcher = &Fetcher{Work: admit.Own()}
	return w
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	all := w.names[host]
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(all) > 1 {
		w.names[host] = all[1:]
	}
	return []netip.Addr{netip.MustParseAddr(all[0])}, nil
}

// egress opens the egress of a call to the hosts of lines.
func (w *world) egress(lines []string) (*sandboxegress.Egress, error) {
	rules, err := egress.ParseRules(lines)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	d := &egress.Dialer{Policy: &egress.Policy{Rules: rules}, Resolver: w, Connect: func(ctx context.Context,
		to netip.AddrPort) (net.Conn, error) {
		w.dialled = append(w.dialled, to.Addr().String())
		return new(net.Dialer).DialContext(ctx, "tcp", w.server.Listener.Addr().String())
	}}
	if c := w.server.Certificate(); c != nil {
		d.Roots = x509.NewCertPool()
		d.Roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	s, err := egress.NewServer(d, egress.Options{Credentials: w.creds})
	e := &sandboxegress.Egress{Server: s, Hosts: lines}
	for _, c := range w.creds {
		e.Secret = append(e.Secret, c.Host)
	}
	return e, err
}

// usual are the lines of a contract.
var usual = []string{"a.example", "b.example", "inner.example", "rebind.example", "meta.example"}

func (w *world) as(session string, lines []string, arguments map[string]any) call.Outcome {
	w.t.Helper()
	args, err := call.ArgsOf(arguments)
	if err != nil {
		w.t.Fatal(err)
	}
	w.fetcher.Open = func(policy.Decision, contract.Network) (*sandboxegress.Egress, error) { return w.egress(lines) }
	d := policy.Decision{Call: call.Call{Capability: "fetch", Args: args, Session: call.Session(session),
		Principal: "os:1"},
		Contract: contract.Contract{Transport: contract.Direct, Timeout: 20 * time.Second}}
	ctx, cancel := context.WithTimeout(w.t.Context(), d.Contract.Timeout)
	defer cancel()
	out, err := w.fetcher.Tool().Run(ctx, d)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) get(url string) call.Outcome { return w.as("n_1", usual, map[string]any{"url": url}) }

func code(o call.Outcome) string {
	if o.Refused == nil {
		return ""
	}
	return o.Refused.Code
}

func body(o call.Outcome) string {
	if len(o.Content) < 2 {
		return ""
	}
	return o.Content[1].Text
}

func hello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "hello")
}

func TestFetch(t *testing.T) {
	w := newWorld(t, hello)
	out := w.get("http://a.example/x?y=1#part")
	if body(out) != "hello" || out.IsError || out.Facts.SideEffect != facts.None || out.Trust != call.Untrusted {
		t.Fatal(out.Content, out.Facts)
	}
	if got := fmt.Sprint(out.Facts.Network.Contacted, out.Facts.Network.AllowedHosts); got != "[a.example:80] [a.example b.example inner.example rebind.example meta.example]" {
		t.Error(got)
	}
	var s shown
	if err := json.Unmarshal(out.Structured.Raw(), &s); err != nil || s.Status != 200 || s.Text != "hello" ||
		s.URL != "http://a.example/x?y=1" {
		t.Error(s, err)
	}
	w.names["b.example"] = nil
	if out := w.get("http://b.example/"); out.Refused != nil || !out.IsError ||
		out.Content[0].Text != "the name was not found (b.example)" {
		t.Error("a name without an address is a failure, no refusal:", out.Content)
	}
	if out := w.as("n_1", nil, map[string]any{"url": "http://a.example/"}); code(out) != "fetch.network" {
		t.Error("a contract without hosts:", code(out))
	}
}

// A URL that is not one plain address of an allowed host goes nowhere.
func TestURLs(t *testing.T) {
	w := newWorld(t, hello)
	for url, want := range map[string]string{
		"http://a.example/": "", "HTTP://A.EXAMPLE./": "", "http://a.example:80/": "",
		"http://a.example@evil.example/":      "egress.url.host",
		"http://user:pass@a.example/":         "egress.url.host",
		"http://evil.example/":                "egress.host",
		"http://a.example.evil.example/":      "egress.host",
		"http://a.example:8080/":              "egress.port",
		"http://a.example:0/":                 "egress.url.port",
		"http://127.0.0.1/":                   "egress.host",
		"http://[::1]/":                       "egress.host",
		"http://0x7f000001/":                  "egress.url.host",
		"http://2130706433/":                  "egress.url.host",
		"http://169.254.169.254/latest/":      "egress.host",
		"file:///etc/passwd":                  "egress.url.scheme",
		"gopher://a.example/":                 "egress.url.scheme",
		"ftp://a.example/":                    "egress.url.scheme",
		"//a.example/":                        "egress.url.scheme",
		"javascript:alert(1)":                 "egress.url.scheme",
		"http://a.example/\r\nX: 1":           "egress.url.control",
		"http://a.example /":                  "egress.url.control",
		"http://a.example\\@evil.example/":    "egress.url.host",
		"http://inner.example/":               "egress.address",
		"http://meta.example/latest/":         "egress.address",
		"http://" + strings.Repeat("a", 9000): "egress.url.long",
	} {
		w.dialled = nil
		if out := w.get(url); code(out) != want {
			t.Errorf("%.60s: %q, want %q: %v", url, code(out), want, out.Content[0].Text)
		} else if want != "" && len(w.dialled) > 0 {
			t.Errorf("%.60s: something was dialled: %v", url, w.dialled)
		}
	}
}

// Each redirect is judged as a request of its own.
func TestRedirects(t *testing.T) {
	var loops atomic.Int64
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/to":
			w.Header().Set("Location", r.URL.Query().Get("u"))
			w.WriteHeader(http.StatusFound)
		case r.URL.Path == "/loop":
			loops.Add(1)
			http.Redirect(w, r, "/loop", http.StatusFound)
		case r.URL.Path == "/keep":
			w.Header().Set("Location", r.URL.Query().Get("u"))
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "%s %s%s %q %s", r.Method, r.Host, r.URL.Path, b, r.Header.Get("Content-Type"))
		}
	})
	for to, want := range map[string]string{
		"http://b.example/end": "", "/end": "", "//b.example/end": "", "end#x": "",
		"http://127.0.0.1/": "egress.host", "http://169.254.169.254/": "egress.host", "http://inner.example/": "egress.address",
		"http://meta.example/": "egress.address", "http://evil.example/": "egress.host", "http://b.example:22/": "egress.port",
		"file:///etc/passwd": "egress.url.scheme", "http://u:p@b.example/": "egress.url.host",
	} {
		out := w.get("http://a.example/to?u=" + strings.NewReplacer("&", "%26", "#", "%23").Replace(to))
		if code(out) != want || want == "" && !strings.HasPrefix(body(out), "GET ") {
			t.Errorf("%s: %q %v", to, code(out), out.Content)
		}
	}
	if out := w.get("http://a.example/loop"); !out.IsError || !strings.Contains(out.Content[0].Text, "redirects") ||
		loops.Load() != maxRedirects+1 {
		t.Error("an endless redirect:", out.Content, loops.Load())
	}
	lines := []string{"POST a.example/*", "POST b.example/*", "GET a.example/*", "GET b.example/*"}
	post := func(url string) call.Outcome {
		return w.as("n_1", lines, map[string]any{"url": url, "method": "POST", "body": "the body",
			"headers": map[string]any{"content-type": "text/x"}})
	}
	if out := post("http://a.example/keep?u=/end"); body(out) != `POST a.example/end "the body" text/x` || out.Facts.SideEffect != facts.Confirmed {
		t.Error("control: 307 to the same host keeps the body:", out.Content, out.Facts.SideEffect)
	}
	if out := post("http://a.example/keep?u=http://b.example/end"); !out.IsError ||
		out.Facts.SideEffect != facts.Unknown ||
		!strings.Contains(out.Content[0].Text, "another host") {
		t.Error("307 to another host:", out.Content)
	}
	if out := post("http://a.example/to?u=http://b.example/end"); !strings.HasPrefix(body(out), `GET b.example/end ""`) {
		t.Error("302 makes it a GET without a body:", out.Content)
	}
}

// A name is resolved once for each connection, and only the address that was checked is dialled.
func TestRebinding(t *testing.T) {
	w := newWorld(t, hello)
	if out := w.get("http://rebind.example/"); body(out) != "hello" || fmt.Sprint(w.dialled) != "["+public+"]" {
		t.Error("control:", out.Content, w.dialled)
	}
	w.dialled = nil
	if out := w.get("http://rebind.example/"); code(out) != "egress.address" || len(w.dialled) > 0 {
		t.Error("the second address:", code(out), w.dialled)
	}
}

func TestMethods(t *testing.T) {
	var got atomic.Value
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { got.Store(r.Method); hello(w, r) })
	for _, row := range []struct {
		method, line, want string
	}{
		{"GET", "a.example", ""}, {"HEAD", "a.example", ""}, {"POST", "a.example", "egress.request"},
		{"DELETE", "GET,POST a.example/*", "egress.request"}, {"POST", "POST a.example/v1/*", ""},
		{"POST", "POST a.example/v2/*", "egress.request"}, {"GET", "POST a.example/v1/*", "egress.request"},
		{"POST", "POST b.example/v1/*", "egress.request"},
	} {
		got.Store("")
		lines := []string{row.line, "b.example"}
		out := w.as("n_1", lines, map[string]any{"url": "http://a.example/v1/x", "method": row.method})
		if code(out) != row.want || row.want == "" && got.Load() != row.method || row.want != "" && got.Load() != "" {
			t.Errorf("%s with %q: %q, the host saw %q", row.method, row.line, code(out), got.Load())
		}
	}
	out := w.as("n_1", []string{"a.example:8081"}, map[string]any{"url": "http://a.example:8081/v1", "method": "POST"})
	if out.Refused == nil || !strings.HasSuffix(out.Refused.Text, `as in "POST a.example:8081/path"`) {
		t.Error("the hint names the port:", out.Refused)
	}
	a, _ := call.ArgsOf(map[string]any{"method": "POST"})
	if danger, why := judge(call.Call{Args: a}, contract.Contract{}); danger != 2 || why == nil {
		t.Error("POST has danger", danger)
	}
	a, _ = call.ArgsOf(map[string]any{"method": "HEAD"})
	if _, why := judge(call.Call{Args: a}, contract.Contract{}); why != nil {
		t.Error("HEAD:", why)
	}
}

func TestHeaders(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for name, v := range r.Header {
			fmt.Fprintf(w, "%s=%s;", name, v[0])
		}
		fmt.Fprint(w, r.Host)
	})
	out := w.as("n_1", usual, map[string]any{"url": "http://a.example/", "headers": map[string]any{"accept": "text/x"}})
	if !strings.Contains(body(out), "Accept=text/x;") || !strings.HasSuffix(body(out), "a.example") ||
		strings.Contains(body(out), "Forwarded") {
		t.Error("control:", out.Content)
	}
	for name, value := range map[string]string{
		"Accept": "x\r\nEvil: 1", "Host": "b.example", "Authorization": "Bearer x", "Cookie": "a=b", "X-Forwarded-For": "127.0.0.1",
		"Accept\r\nEvil": "1", "Proxy-Authorization": "x", "Transfer-Encoding": "chunked", "accept-language": "\x00", "Content-Type": "ü",
	} {
		out := w.as("n_1", usual, map[string]any{"url": "http://a.example/", "headers": map[string]any{name: value}})
		if code(out) != "fetch.header" {
			t.Errorf("%q: %q: %v", name, value, out.Content)
		}
	}
}

// The bounds hold before and after decompression, and against slow or endless hosts.
func TestBounds(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/endless":
			for b := bytes.Repeat([]byte("x"), 1<<16); r.Context().Err() == nil; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		case "/slow":
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		case "/heads":
			w.Header().Set("X-Long", strings.Repeat("x", 200<<10))
		case "/odd":
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "hello")
		case "/torn":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes()[:1000])
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "hello")
			_ = z.Close()
		}
	})
	if out := w.get("http://a.example/gzip"); body(out) != "hello" {
		t.Error("control:", out.Content)
	}
	for _, path := range []string{"/bomb", "/endless"} {
		out := w.get("http://a.example" + path)
		if len(body(out)) != usualBytes || !strings.Contains(out.Content[0].Text, "cut off at 1048576 bytes") {
			t.Errorf("%s: %d bytes: %s", path, len(body(out)), out.Content[0].Text)
		}
		out = w.as("n_1", usual, map[string]any{"url": "http://a.example" + path, "max_bytes": 10})
		if len(body(out)) != 10 {
			t.Errorf("%s: %d bytes", path, len(body(out)))
		}
	}
	for _, path := range []string{"/heads", "/odd", "/torn"} {
		if out := w.get("http://a.example" + path); !out.IsError || strings.Contains(fmt.Sprint(out.Content), "hello") {
			t.Errorf("%s: %v", path, out.Content)
		}
	}
	args, _ := call.ArgsOf(map[string]any{"url": "http://a.example/slow"})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begun := time.Now()
	out, err := w.fetcher.Tool().Run(ctx, policy.Decision{Call: call.Call{Args: args}})
	if err != nil || !out.IsError || time.Since(begun) > 15*time.Second {
		t.Error("a slow body:", out.Content, err, time.Since(begun))
	}
}

func TestTypes(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n0123"
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_, _ = io.WriteString(w, map[string]string{"/png": png,
			"/html": "<html><head><title>T</title><script>evil()</script></head>" +
				"<body><h1>Head</h1><p>one <a href='/x'>two</a></p></body></html>", "/cyrillic": "\xcf\xf0\xe8\xe2\xe5\xf2",
			"/meta": "<meta charset=windows-1251><p>\xcf\xf0\xe8\xe2\xe5\xf2</p>", "/json": `{"a": 1}`}[r.URL.Path])
	})
	for _, row := range []struct {
		why, path, kind string
		raw             bool
		want            string
	}{
		{"HTML is Markdown", "/html", "text/html", false, "# Head\n\none [two](/x)"},
		{"unless raw", "/html", "text/html", true, "<html><head><title>T</title><script>evil()</script></head><body><h1>Head</h1><p>one <a href='/x'>two</a></p></body></html>"},
		{"a charset of the header", "/cyrillic", "text/plain; charset=windows-1251", false, "Привет"},
		{"a charset of the document", "/meta", "text/html", false, "Привет"},
		{"JSON", "/json", "application/problem+json", false, `{"a": 1}`},
		{"HTML that is said to be text stays text", "/json", "text/plain", false, `{"a": 1}`},
		{"bytes that are no UTF-8", "/png", "text/plain; charset=utf-8", false, "\uFFFDPNG\r\n\x1a\n0123"},
		{"a page as a picture is not shown", "/html", "image/png", false, ""},
		{"a picture of another type is not shown", "/png", "image/jpeg", false, ""},
		{"SVG is no picture, but text", "/json", "image/svg+xml", false, `{"a": 1}`},
		{"a type that is none", "/json", "???", false, ""},
		{"other bytes", "/png", "application/pdf", false, ""},
	} {
		out := w.as("n_1", usual, map[string]any{"url": "http://a.example" + row.path + "?type=" + url.QueryEscape(row.kind), "raw": row.raw})
		if body(out) != row.want || row.want == "" && len(out.Content) != 1 {
			t.Errorf("%s: %q: %v", row.why, body(out), out.Content[0].Text)
		}
	}
	out := w.get("http://a.example/png?type=image/png")
	if len(out.Content) != 2 || out.Content[1].Type != "image" || !out.Structured.IsZero() {
		t.Error("a picture:", out.Content)
	}
}

// TestCrowded: a page whose tags make the parser repeat open elements is not converted; a long page of the same tags is.
func TestCrowded(t *testing.T) {
	fill := func(part string) string { return strings.Repeat(part, maxHTML/len(part)) }
	for part, want := range map[string]bool{
		"<b><p>":               true,
		"<a><b><i><u><s><p>":   true,
		"<table>x<b>":          true,
		"<i>":                  true,
		"<svg><foreignObject>": true,
		"<p>some <b>bold</b> and <i>other</i> words and a <a href=x>link</a> in a line</p>\n": false,
		"<tr><td><code>a</code></td><td>and what it is said to be</td></tr>\n":                false,
	} {
		if crowded(fill(part)) != want {
			t.Errorf("%q: crowded is not %v", part, want)
		}
	}
}

// The cache serves an answer to its own session and principal alone, and revalidates an old one.
// TestHostilePages: a page takes neither a long time nor much memory to convert, whatever its tags and signs are.
func TestHostilePages(t *testing.T) {
	fill := func(head, part string) string { return head + strings.Repeat(part, (400<<10)/len(part)) }
	for what, page := range map[string]string{
		"an ordinary page": fill("<h1>x</h1>", "<p>some <b>words</b> and [a link](x)</p>"),
		"brackets":         fill("", "["),
		"deep quotes":      fill(strings.Repeat("<blockquote>", 400), "x<br>"),
		"deep lists":       fill(strings.Repeat("<ul><li>", 200), "x<br>"),
		"lists in cells":   fill(strings.Repeat("<li><table><tr><td>", 100), "x<br>"),
	} {
		done := make(chan int, 1)
		go func() {
			out, err := convert(page)
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			done <- len(out)
		}()
		select {
		case n := <-done:
			if n < len(page)/10 || n > 40*len(page) {
				t.Errorf("%s: %d bytes became %d", what, len(page), n)
			}
		case <-time.After(15 * time.Second):
			t.Fatalf("%s: it takes too long", what)
		}
	}
}

func TestCache(t *testing.T) {
	var hits, asked atomic.Int64
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		n := hits.Add(1)
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/tagged" {
			w.Header().Set("Etag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				asked.Add(1)
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		w.Header().Set("Cache-Control", map[string]string{"/fresh": "max-age=60", "/never": "no-store, max-age=60",
			"/tagged": "no-cache",
			"/vary":   "max-age=60", "/cookie": "max-age=60"}[r.URL.Path])
		if r.URL.Path == "/vary" {
			w.Header().Set("Vary", "*")
		}
		if r.URL.Path == "/cookie" {
			w.Header().Set("Set-Cookie", "a=b")
		}
		fmt.Fprintf(w, "answer %d", n)
	})
	now := time.Now()
	w.fetcher.Now = func() time.Time { return now }
	ask := func(session, path string, more ...any) string {
		arguments := map[string]any{"url": "http://a.example" + path}
		for i := 0; i < len(more); i += 2 {
			arguments[more[i].(string)] = more[i+1]
		}
		return body(w.as(session, usual, arguments))
	}
	first := ask("n_1", "/fresh")
	if ask("n_1", "/fresh") != first {
		t.Error("control: a fresh answer is used again")
	}
	if ask("n_2", "/fresh") == first {
		t.Error("another session sees what this one was sent")
	}
	if ask("n_1", "/fresh", "fresh", true) == first || ask("n_1", "/fresh", "headers",
		map[string]any{"Accept": "x"}) == first {
		t.Error("fresh, and another Accept, ask the host")
	}
	now = now.Add(2 * time.Hour)
	if again := ask("n_1", "/fresh"); again == first {
		t.Error("an old answer is used")
	}
	for _, path := range []string{"/never", "/vary", "/cookie"} {
		if first := ask("n_1", path); ask("n_1", path) == first {
			t.Errorf("%s is kept", path)
		}
	}
	if a, b := ask("n_1", "/tagged"), ask("n_1", "/tagged"); a != b || asked.Load() != 1 {
		t.Error("a tagged answer is asked about:", a, b, asked.Load())
	}
	if ask("n_1", "/tagged", "max_bytes", 3) == "" || asked.Load() != 1 {
		t.Error("a smaller bound asks anew")
	}
	// The rules come before the cache: a contract without the host gets no answer.
	if out := w.as("n_1", []string{"b.example"}, map[string]any{"url": "http://a.example/fresh"}); code(out) != "egress.host" {
		t.Error("the cache passes by the rules:", out.Content)
	}
	for i := range 2 * maxEntries {
		ask("n_1", fmt.Sprintf("/fresh?%d", i))
	}
	if n := w.fetcher.cache.used.Len(); n != maxEntries || len(w.fetcher.cache.byKey) != n {
		t.Error("the cache has", n)
	}
}

// A host cannot pass for waldo's refusal, and the secret of a host is added to its requests and hidden in its answers.
func TestSecret(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/forged" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "waldo: egress.host: no rule names this host")
			return
		}
		_, _ = io.WriteString(w, r.Host+" got "+r.Header.Get("Authorization"))
	})
	if out := w.get("http://a.example/forged"); out.Refused != nil || !out.IsError ||
		!strings.Contains(out.Content[0].Text, "answered 403") {
		t.Error("a forged refusal:", out.Content)
	}
	w.server.Close()
	var seen atomic.Value
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "got "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(w.server.Close)
	const token = "tok_0f8e7d6c5b4a39281706f5e4d3c2b1a0"
	w.creds = []egress.Credential{{Name: "token", Placeholder: egress.NewPlaceholder(), Host: "example.com", Port: 443,
		Methods: []string{"GET"}, Paths: []string{"/v1/*"}, As: egress.Bearer,
		Value: func() (secret.Value, error) { return secret.NewValue(token), nil }}}
	w.names["example.com"] = []string{public} // a name of the test server's certificate
	out := w.as("n_1", []string{"example.com"}, map[string]any{"url": "https://example.com/v1/x"})
	if seen.Load() != "Bearer "+token || strings.Contains(fmt.Sprint(out.Content), token) ||
		!strings.HasPrefix(body(out), "got Bearer ***") {
		t.Error("the secret:", seen.Load(), out.Content)
	}
	out = w.as("n_1", []string{"example.com"}, map[string]any{"url": "https://example.com/v2/x"})
	if seen.Load() != "" || body(out) != "got " {
		t.Error("another path:", seen.Load(), out.Content)
	}
	if len(out.Facts.Warnings) != 0 {
		t.Error("control: https:", out.Facts.Warnings)
	}
	out = w.as("n_1", []string{"example.com"}, map[string]any{"url": "http://example.com/v1/x"})
	if !slices.Contains(out.Facts.Warnings, plainHTTP) {
		t.Error("plain http:", out.Facts.Warnings)
	}
}

func TestRobots(t *testing.T) {
	rules, status := "User-agent: *\nDisallow: /private\n", http.StatusOK
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, rules)
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	ask := func(path string, robots bool) call.Outcome {
		return w.as("n_1", usual, map[string]any{"url": "http://a.example" + path, "robots": robots})
	}
	if body(ask("/private/x", false)) != "hello" || body(ask("/open", true)) != "hello" {
		t.Error("control")
	}
	if out := ask("/private/x", true); code(out) != "fetch.robots" {
		t.Error(out.Content)
	}
	status = http.StatusNotFound
	if body(ask("/private/x", true)) != "hello" {
		t.Error("without robots.txt all is allowed")
	}
	status = http.StatusServiceUnavailable
	if code(ask("/open", true)) != "fetch.robots" {
		t.Error("robots.txt that cannot be read allows nothing")
	}
}

// FuzzText: any page in any charset becomes valid UTF-8, and nothing panics.
func FuzzText(f *testing.F) {
	f.Add("text/html; charset=utf-16", []byte("<p>a<table><tr><td>b"), false)
	f.Add("text/plain; charset=big5", []byte("\xa4\xa4"), false)
	f.Fuzz(func(t *testing.T, kind string, b []byte, raw bool) {
		got := text("text/html", kind, b, raw)
		if strings.ToValidUTF8(got, "") != got {
			t.Errorf("%q", got)
		}
	})
}

// TestPreview: a human sees the whole request, each line of its body with a number.
func TestPreview(t *testing.T) {
	body := strings.Repeat("x\n", 300) + "the end"
	args, err := call.ArgsOf(map[string]any{"url": "https://a.example.com/x", "method": "POST", "body": body,
		"headers": map[string]any{"Content-Type": "text/plain"}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(wouldSend(t.Context(), policy.Decision{Call: call.Call{Capability: "fetch", Args: args},
		Contract: contract.Contract{
			Network: contract.Network{Allow: []string{"POST a.example.com/x"}}}}), "|")
	if !strings.HasPrefix(got, "POST https://a.example.com/x|Content-Type: text/plain|its body has 301 lines:|   1  x|") ||
		!strings.HasSuffix(got, "| 301  the end") {
		t.Errorf("%.300s … %s", got, got[max(0, len(got)-50):])
	}
}

// TestMain makes the certificate of httptest one that this process trusts.
func TestMain(m *testing.M) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	dir, err := os.MkdirTemp("", "fetch")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(file, cert, 0o600), os.Setenv("SSL_CERT_FILE", file)); err != nil {
		panic(err)
	}
	m.Run()
}

// TestEnds: an answer that the host cuts comes at once, as far as it came, and is called cut.
func TestEnds(t *testing.T) {
	for _, row := range []struct {
		why, head, body string
		notify          bool
		cut             bool
	}{
		{"control: an end of TLS", "", "hello", true, false},
		{"control: all of a length", "Content-Length: 5\r\n", "hello", false, false},
		{"TCP alone, which may be the end", "", "hello", false, false},
		{"a part of a length", "Content-Length: 500\r\n", "hello", true, true},
		{"a part of the chunks", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", false, true},
	} {
		w := newWorld(t, nil)
		w.server.Close()
		w.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"+row.head+"\r\n"+row.body)
			if row.notify {
				_ = c.Close()
			} else {
				_ = c.(*tls.Conn).NetConn().Close()
			}
		}))
		begun := time.Now()
		out := w.as("n_1", []string{"example.com"}, map[string]any{"url": "https://example.com/"})
		w.server.Close()
		if body(out) != "hello" || strings.Contains(out.Content[0].Text, "cut off") != row.cut {
			t.Errorf("%s: %+v", row.why, out)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s: it took %s", row.why, took)
		}
	}
}
