package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/frontend/mcpserver/identity"
)

// doorway is a gateway over HTTP as `waldo serve` runs it, with two principals and two servers that need tokens.
type doorway struct {
	t        *testing.T
	url      string
	one, two string // tokens of principals
	a, b     *scripted
}

// The tokens that the two servers want: waldo has them, clients and the other server do not.
const (
	secretA = "upstream-A-9f3kd02mfkw93kfmwo2kdm3"
	secretB = "upstream-B-k3mf82nfpq20dkwm38fjqpw"
)

func openDoorway(t *testing.T, gateway string) *doorway {
	t.Helper()
	d := &doorway{t: t}
	t.Setenv("CORPUS_A", secretA)
	t.Setenv("CORPUS_B", secretB)
	echo := `[{"name":"echo","inputSchema":{"type":"object"}}]`
	d.a, d.b = script(t, map[string]string{"tools": echo}), script(t, map[string]string{"tools": echo})
	var h1, h2 string
	d.one, h1 = identity.NewToken()
	d.two, h2 = identity.NewToken()
	if gateway == "" {
		gateway = "{auth: {tokens: {one: " + yamlText(h1) + ", two: " + yamlText(h2) + "}}}"
	}
	d.url = served(t, fmt.Sprintf("version: 1\nservers:\n"+
		"  a: {url: %q, auth: {bearer: 'env:CORPUS_A'}}\n  b: {url: %q, auth: {headers: {X-Key: 'env:CORPUS_B'}}}\n"+
		"capabilities:\n  a.*: {mode: read, approval: none}\n  b.*: {mode: read, approval: none}\ngateway: %s\n",
		d.a.url, d.b.url, gateway))
	return d
}

func yamlText(s string) string { b, _ := json.Marshal(s); return string(b) }

const corpusHello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// ask sends one request and returns its status, headers and body. Headers are pairs; an empty value removes one.
func (d *doorway) ask(method, path, body string, headers ...string) (int, http.Header, string) {
	d.t.Helper()
	r, err := http.NewRequest(method, strings.TrimSuffix(d.url, "/mcp")+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Authorization": {"Bearer " + d.one},
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			r.Host = headers[i+1]
		case headers[i+1] == "":
			r.Header.Del(headers[i])
		default:
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// raw sends bytes as they are and returns the status of the answer.
func (d *doorway) raw(text string) int {
	d.t.Helper()
	u, _ := url.Parse(d.url)
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "HOST", u.Host)); err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0 // closed without an answer
	}
	return resp.StatusCode
}

// session opens a session of the legacy era and returns its id.
func (d *doorway) session(token string) string {
	d.t.Helper()
	status, h, body := d.ask("POST", "/mcp", corpusHello, "Authorization", "Bearer "+token)
	id := h.Get("Mcp-Session-Id")
	if status != 200 || id == "" {
		d.t.Fatalf("initialize: %d %s", status, body)
	}
	d.ask("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Authorization", "Bearer "+token,
		"Mcp-Session-Id", id)
	return id
}

const corpusCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a__echo","arguments":{}}}`

// status asks with a row's headers and wants a status of the list.
func status(headers bool, want ...int) func(*doorway, corpusCase) {
	return func(d *doorway, r corpusCase) {
		var h []string
		for k, v := range r.Input.Headers {
			h = append(h, k, v)
		}
		if headers && len(h) == 0 {
			d.t.Fatal("the row has no headers")
		}
		if got, _, body := d.ask("POST", "/mcp", corpusHello, h...); !slices.Contains(want, got) {
			d.t.Errorf("%d %s, wanted %v", got, body, want)
		}
	}
}

// httpRows judge the rows of http-transport, each through a listening gateway. If the corpus leaves the verdict to a
// policy, the entry names waldo's.
var httpRows = map[string]func(*doorway, corpusCase){
	"0002": status(true, 403), "0003": status(true, 403), "0004": status(true, 403),
	"0005": status(true, 403), // policy: a page of another port is another site, even on this machine
	"0007": status(true, 403), // documented: a name is compared as it is written, so "localhost." is refused
	"0008": func(d *doorway, _ corpusCase) {
		head := "POST /mcp HTTP/1.1\r\nHost: HOST\r\n%sAuthorization: Bearer " + d.one +
			"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
		if got := d.raw(fmt.Sprintf(head, "", len(corpusHello), corpusHello)); got != 200 {
			d.t.Fatalf("control: %d", got)
		}
		if got := d.raw(fmt.Sprintf(head, "Host: localhost\r\n", len(corpusHello), corpusHello)); got != 400 {
			d.t.Errorf("two Hosts: %d", got)
		}
	},
	"0009": status(true, 403),
	"0016": func(d *doorway, _ corpusCase) {
		const n = 10_000
		seen, at := map[string]bool{}, []map[byte]bool{}
		for range n {
			_, h, _ := d.ask("POST", "/mcp", corpusHello)
			id := h.Get("Mcp-Session-Id")
			d.ask("DELETE", "/mcp", "", "Mcp-Session-Id", id)
			seen[id] = true
			for i := range len(id) {
				if len(at) <= i {
					at = append(at, map[byte]bool{})
				}
				at[i][id[i]] = true
			}
		}
		bits := 0.0
		for _, letters := range at {
			bits += math.Log2(float64(len(letters)))
		}
		if len(seen) != n || bits < 128 {
			d.t.Errorf("%d ids of %d, %.0f bits", len(seen), n, bits)
		}
	},
	"0017": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		if got, _, body := d.ask("POST", "/mcp?sessionId="+id, corpusCall); got != 400 {
			d.t.Errorf("%d %s", got, body)
		}
	},
	"0018": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		if got, _, body := d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id); got != 200 {
			d.t.Fatalf("control: %d %s", got, body)
		}
		d.ask("DELETE", "/mcp", "", "Mcp-Session-Id", id)
		if got, _, _ := d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id); got != 404 {
			d.t.Errorf("%d", got)
		}
	},
	"0019": status(true, 415),
	"0021": status(true, 406),
	"0022": status(false, 200), // documented: without the header a request is of the legacy era
	"0023": status(true, 400),
	// Documented: any revision of the legacy era is accepted, since no decision depends on it.
	"0024": func(d *doorway, r corpusCase) {
		id := d.session(d.one)
		if got, _, body := d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id, "MCP-Protocol-Version",
			r.Input.Headers["MCP-Protocol-Version"]); got != 200 {
			d.t.Errorf("%d %s", got, body)
		}
	},
	"0025": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		if got, _, _ := d.ask("GET", "/mcp", "", "Authorization", "Bearer "+d.two, "Mcp-Session-Id", id, "Accept",
			"text/event-stream"); got != 404 {
			d.t.Errorf("%d", got)
		}
	},
	"0029": func(d *doorway, _ corpusCase) { d.endless("Content-Length: 100000", "x", 200*time.Millisecond) },
	"0030": func(d *doorway, _ corpusCase) {
		d.endless("Transfer-Encoding: chunked", "1\r\nx\r\n", 200*time.Millisecond)
	},
	"0031": func(d *doorway, r corpusCase) {
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		_, _ = z.Write(bytes.Repeat([]byte(" "), 64<<20))
		_ = z.Close()
		if got, _, _ := d.ask("POST", "/mcp", bomb.String(), "Content-Encoding", "gzip"); got != 400 {
			d.t.Errorf("%d", got) // nothing is unpacked: these bytes are no JSON
		}
	},
	"0032": sseText, "0033": sseText,
	"0039": func(d *doorway, _ corpusCase) {
		for _, path := range []string{"/mcp/../admin", "/mcp/..%2fadmin", "/mcp/%2e%2e/admin", "//mcp", "/mcp/"} {
			text := "GET " + path + " HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer " + d.one + "\r\n\r\n"
			if got := d.raw(text); got != 404 {
				d.t.Errorf("%s: %d", path, got)
			}
		}
	},
	"0042": func(d *doorway, _ corpusCase) {
		if got, _, _ := d.ask("POST", "/mcp?access_token="+d.one, corpusHello, "Authorization", ""); got != 401 {
			d.t.Errorf("%d", got)
		}
	},
	"0044": issuedToken(401, func(c, _ map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }),
	"0046": issuedToken(401, func(_, h map[string]any) { h["alg"] = "none" }),
	"0048": issuedToken(403, func(c, _ map[string]any) { c["scope"] = "read" }),
	"0049": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id)
		if got := d.a.heard.all(); !strings.Contains(got, "tools/call") || strings.Contains(got, d.one) {
			d.t.Errorf("the server was sent:\n%s", got)
		}
	},
	"0050": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		d.a.set("call", `{"content":[{"type":"text","text":"my key is `+secretA+`"}]}`)
		_, h, body := d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id)
		if !strings.Contains(body, "my key is ") || strings.Contains(body+fmt.Sprint(h), secretA) {
			d.t.Errorf("%v %s", h, body)
		}
	},
	"0051": func(d *doorway, _ corpusCase) {
		id := d.session(d.one)
		d.ask("POST", "/mcp", corpusCall, "Mcp-Session-Id", id)
		d.ask("POST", "/mcp", strings.Replace(corpusCall, "a__echo", "b__echo", 1), "Mcp-Session-Id", id)
		a, b := d.a.heard.all(), d.b.heard.all()
		if !strings.Contains(a, secretA) || !strings.Contains(b, secretB) || strings.Contains(a, secretB) ||
			strings.Contains(b, secretA) {
			d.t.Error("a server was sent another one's secret, or its own was not sent")
		}
	},
	"0054": loginTo("calls itself", func(u string, doc map[string]any) { doc["issuer"] = "https://other.example" }),
	"0055": loginTo("not an address", func(_ string, doc map[string]any) {
		doc["authorization_endpoint"] = "javascript:alert(1)"
	}),
	"0056": loginTo("", func(u string, doc map[string]any) {
		doc["authorization_endpoint"] = u + "/authorize/$(touch${IFS}RAN)`touch${IFS}RAN`;touch${IFS}RAN"
	}),
	// The rows about authorization servers: waldo serves none, and is a client of those of others.
	"0057": ownRedirect("https://evil.example"), "0058": ownRedirect("http://localhost.evil.example"),
	"0061": ownChallenge, "0064": ownConsent, "0065": oneClient, "0067": noLogo,
	"0059": callback(func(q url.Values) []url.Values { q.Del("state"); return []url.Values{q} }, 400),
	"0060": callback(func(q url.Values) []url.Values { return []url.Values{{"state": {"used"}, "code": {"c"}}, q, q} },
		400, 200, 0),
}

// endless sends a body that never ends and wants the connection closed in the time that the gateway gives a body.
func (d *doorway) endless(header, piece string, every time.Duration) {
	d.t.Helper()
	u, _ := url.Parse(d.url)
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"%s\r\n\r\n", u.Host, d.one, header)
	begun, over := time.Now(), make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(every):
				if _, err := io.WriteString(c, piece); err != nil {
					return
				}
			}
		}
	}()
	_ = c.SetReadDeadline(begun.Add(time.Minute))
	b, err := io.ReadAll(c)
	close(over)
	if took := time.Since(begun); took > 40*time.Second || os.IsTimeout(err) {
		d.t.Errorf("after %v: %q %v", took, b, err)
	}
	if strings.HasPrefix(string(b), "HTTP/1.1 200") {
		d.t.Errorf("%q", b)
	}
}

// sseText has a server's result hold what forges events, and reads the answer as a stream of events.
func sseText(d *doorway, r corpusCase) {
	id := d.session(d.one)
	text, _ := json.Marshal(r.Input.UpstreamResult)
	d.a.set("call", `{"content":[{"type":"text","text":`+string(text)+`}]}`)
	d.a.slow.Store(true) // so that the answer is a stream
	_, h, body := d.ask("POST", "/mcp",
		strings.Replace(corpusCall, `"arguments"`, `"_meta":{"progressToken":1},"arguments"`, 1), "Mcp-Session-Id", id)
	if !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		d.t.Fatalf("control: the answer is no stream: %v %s", h, body)
	}
	found := false
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body), "\n") {
		field, data, _ := strings.Cut(line, ":")
		if !slices.Contains([]string{"", "id", "data", "retry"}, field) && line != "event: message" {
			d.t.Errorf("a forged field: %q", line)
		}
		var m struct {
			Result struct{ Content []struct{ Text string } }
		}
		if field == "data" && strings.TrimSpace(data) != "" {
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				d.t.Errorf("an event that is no message: %q", data)
			}
			for _, c := range m.Result.Content {
				found = found || strings.Contains(c.Text, "x\n") || strings.Contains(c.Text, "data: {}")
			}
		}
	}
	if !found {
		d.t.Errorf("the text did not come: %q", body)
	}
}

// issuedToken gives the gateway an issuer and shows it a token, changed; unchanged it is let in.
func issuedToken(want int, change func(claims, header map[string]any)) func(*doorway, corpusCase) {
	return func(d *doorway, _ corpusCase) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			d.t.Fatal(err)
		}
		point, err := key.PublicKey.Bytes() // 4, x and y
		if err != nil {
			d.t.Fatal(err)
		}
		b64 := base64.RawURLEncoding.EncodeToString
		issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","kid":"k","use":"sig","alg":"ES256","x":%q,"y":%q}]}`,
				b64(point[1:33]), b64(point[33:]))
		}))
		defer issuer.Close()
		dir := d.t.TempDir()
		file := filepath.Join(dir, "waldo.yaml")
		config := fmt.Sprintf("version: 1\ncapabilities: {}\ngateway: {url: 'https://waldo.example.com/mcp', auth: {oidc: "+
			"{issuer: %q, jwks: %q, scopes: [write]}}}\n", issuer.URL, issuer.URL+"/keys")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			d.t.Fatal(err)
		}
		h, err := withFeatures(&cli.Context{Config: file, State: filepath.Join(dir, "state")}).Open(context.Background(),
			app.Options{})
		if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = h.Close() })
		h.Logins().OIDC.Client = issuer.Client() // which trusts its certificate
		here := &doorway{t: d.t, url: listening(d.t, h)}
		token := func(change func(claims, header map[string]any)) string {
			header := map[string]any{"alg": "ES256", "kid": "k", "typ": "at+jwt"}
			claims := map[string]any{
				"iss": issuer.URL, "sub": "alice", "aud": "https://waldo.example.com/mcp", "exp": time.Now().Add(time.Hour).Unix(),
				"scope": "write",
			}
			change(claims, header)
			hb, _ := json.Marshal(header)
			cb, _ := json.Marshal(claims)
			text := b64(hb) + "." + b64(cb)
			if header["alg"] == "none" {
				return text + "."
			}
			sum := sha256.Sum256([]byte(text))
			r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
			if err != nil {
				d.t.Fatal(err)
			}
			sig := make([]byte, 64)
			r.FillBytes(sig[:32])
			s.FillBytes(sig[32:])
			return text + "." + b64(sig)
		}
		if got, _, body := here.ask("POST", "/mcp", corpusHello, "Authorization",
			"Bearer "+token(func(_, _ map[string]any) {})); got != 200 {
			d.t.Fatalf("control: %d %s", got, body)
		}
		if got, _, body := here.ask("POST", "/mcp", corpusHello, "Authorization", "Bearer "+token(change)); got != want {
			d.t.Errorf("%d %s", got, body)
		}
	}
}

// issued holds the requests that an issuer got.
type issued struct {
	mu      sync.Mutex
	clients []map[string]any // registrations
	tokens  []url.Values
	paths   []string
}

// issuing is an issuer and the server whose tokens it gives, on loopback.
func issuing(t *testing.T, change func(url string, doc map[string]any), seen *issued) string {
	var at string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var doc map[string]any
		seen.mu.Lock()
		defer seen.mu.Unlock()
		seen.paths = append(seen.paths, r.URL.Path)
		switch {
		case strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource"):
			doc = map[string]any{"resource": at + "/mcp", "authorization_servers": []string{at}}
		case r.URL.Path == "/.well-known/oauth-authorization-server":
			doc = map[string]any{"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token",
				"registration_endpoint": at + "/register", "code_challenge_methods_supported": []string{"S256"}}
			change(at, doc)
		case r.URL.Path == "/register":
			var client map[string]any
			_ = json.NewDecoder(r.Body).Decode(&client)
			seen.clients = append(seen.clients, client)
			doc = map[string]any{"client_id": "w", "token_endpoint_auth_method": "none", "logo_uri": at + "/logo"}
		case r.URL.Path == "/token":
			_ = r.ParseForm()
			seen.tokens = append(seen.tokens, r.PostForm)
			doc = map[string]any{"access_token": "issued-0123456789", "token_type": "Bearer"}
		default:
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(srv.Close)
	at = srv.URL
	return at
}

// loginTo runs `waldo login` with a program for a browser that leads back at once. The login ends with the words of
// want; "": it is done, and the program was given the page as one argument.
func loginTo(want string, change func(url string, doc map[string]any)) func(*doorway, corpusCase) {
	return func(d *doorway, _ corpusCase) { loginAs(d.t, want, change, leadBack, &issued{}) }
}

// leadBack is a browser in Python that goes back with the code and the state that it was given.
const leadBack = `
q = urllib.parse.parse_qs(urllib.parse.urlsplit(page).query)
back = q["redirect_uri"][0] + "?" + urllib.parse.urlencode({"code": "c", "state": q["state"][0]})
urllib.request.urlopen(back).read()
`

// loginAs runs `waldo login` with a browser of those lines of Python, and returns the folder that it ran in.
func loginAs(
	t *testing.T, want string, change func(url string, doc map[string]any), browser string, seen *issued,
) (dir string) {
	t.Helper()
	dir = t.TempDir()
	at := issuing(t, change, seen)
	prog := filepath.Join(dir, "browser.py")
	head := "import os, sys, json, urllib.request, urllib.parse, urllib.error\nos.chdir(" + yamlText(dir) + ")\n" +
		"assert len(sys.argv) == 2\npage = sys.argv[1]\nopen('page', 'w').write(page)\n"
	config := filepath.Join(dir, "waldo.yaml")
	for name, text := range map[string]string{
		prog:   head + browser,
		config: fmt.Sprintf("version: 1\nservers: {crm: {url: %q, auth: {oauth: {}}}}\ncapabilities: {}\n", at+"/mcp"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	said := typing(t, "", "--config", config, "--state", filepath.Join(dir, "state"), "login", "crm",
		"--browser", "python3 "+prog)
	if done := strings.Contains(said.out, "logged in"); done != (want == "") || !strings.Contains(said.err, want) {
		t.Errorf("login: %+v", said)
	}
	if n := len(seen.tokens); (n == 1) != (want == "") {
		t.Errorf("%d tokens were asked for", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "RAN")); err == nil {
		t.Error("a part of the page was run")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "page")); want == "" && (err != nil || !strings.HasPrefix(string(b), at)) {
		t.Errorf("the browser was given %q: %v", b, err)
	}
	return dir
}

// callback leads back to a login in the ways that change makes of the good one, and wants those statuses (0: no
// answer, the login is over). Then, where none was good, it leads back as it should.
func callback(change func(q url.Values) []url.Values, want ...int) func(*doorway, corpusCase) {
	return func(d *doorway, _ corpusCase) {
		var tries []string
		for _, q := range change(url.Values{"code": {"c"}, "state": {"STATE"}}) {
			tries = append(tries, q.Encode())
		}
		b, _ := json.Marshal(tries)
		dir := loginAs(d.t, "", func(string, map[string]any) {}, `
q = urllib.parse.parse_qs(urllib.parse.urlsplit(page).query)
said = []
for t in json.loads(`+"'''"+string(b)+"'''"+`):
    try: said.append(urllib.request.urlopen(q["redirect_uri"][0] + "?" + t.replace("STATE", q["state"][0])).status)
    except urllib.error.HTTPError as e: said.append(e.code)
    except OSError: said.append(0)
open("said.tmp", "w").write(json.dumps(said)); os.rename("said.tmp", "said")
if 200 not in said:`+strings.ReplaceAll(leadBack, "\n", "\n    ")+"\n", &issued{})
		var said []int
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) &&
			said == nil; time.Sleep(20 * time.Millisecond) {
			b, _ := os.ReadFile(filepath.Join(dir, "said"))
			_ = json.Unmarshal(b, &said)
		}
		for i, status := range said {
			// A second use finds the login over, or counts for nothing: one token was asked for, as loginAs says.
			if len(said) != len(want) || status != want[i] && !(want[i] == 0 && status == 200) {
				d.t.Fatalf("%v, wanted %v", said, want)
			}
		}
	}
}

// TestCorpusOfHTTP sends each row of http-transport to a gateway that listens.
func TestCorpusOfHTTP(t *testing.T) {
	for _, r := range corpusCases(t, "http-transport", 40) {
		number := r.ID[strings.LastIndexByte(r.ID, '/')+1:]
		t.Run(number+" "+r.Why, func(t *testing.T) {
			judge := httpRows[number]
			if judge == nil {
				t.Fatal("nothing judges this row")
			}
			judge(openDoorway(t, ""), r)
		})
	}
}
