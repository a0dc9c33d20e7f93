package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
)

func request(t *testing.T, authorization string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("POST", "/mcp", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func TestTokens(t *testing.T) {
	token, hash := NewToken()
	other, _ := NewToken()
	if len(token) != len("waldo_")+52 || !strings.HasPrefix(hash, "sha256:") || token == other {
		t.Fatalf("%d letters, %s", len(token), hash)
	}
	long := strings.Repeat("x", maxToken)
	o := &Options{Tokens: map[string]string{
		"ci": hash, "ops": Hash("x"), "long": Hash(long), "longer": Hash(long + "x"), "empty": Hash(""),
	}}
	for _, row := range []struct {
		why, header string
		who         call.Principal
		status      int
	}{
		{"the control", "Bearer " + token, "token:ci", 0},
		{"the scheme is a word", "bearer " + token, "token:ci", 0},
		{"the other one", "Bearer x", "token:ops", 0},
		{"no token", "", "", 401},
		{"another's", "Bearer " + other, "", 401},
		{"the hash for the token", "Bearer " + hash, "", 401},
		{"the name for the token", "Bearer ci", "", 401},
		{"a part of it", "Bearer " + token[:20], "", 401},
		{"another scheme", "Basic " + token, "", 401},
		{"no scheme", token, "", 401},
		{"nothing", "Bearer ", "", 401},
		{"the longest", "Bearer " + long, "token:long", 0},
		{"a known token that is longer", "Bearer " + long + "x", "", 401},
		{"a token of an issuer, without one", "Bearer " + newIssuer(t).token(t, nil), "", 401},
	} {
		who, refusal := o.Identify(request(t, row.header))
		if who != row.who || (refusal == nil) != (row.status == 0) ||
			refusal != nil && (refusal.Status != row.status || !strings.HasPrefix(refusal.Challenge, "Bearer")) {
			t.Errorf("%s: %q %+v", row.why, who, refusal)
		}
		if refusal != nil && strings.Contains(refusal.Challenge, "error=") != (row.header != "") { // RFC 6750 §3.1
			t.Errorf("%s: %q", row.why, refusal.Challenge)
		}
	}
}

// issuer is an authorization server for tests.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	id    string
	asked atomic.Int32
	name  string // in its metadata
	extra string // JSON of one more key
	down  atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	s := &issuer{}
	s.turn(t, "k1")
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "down", 500)
			return
		}
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, s.name, s.URL+"/keys")
		case "/keys":
			s.asked.Add(1)
			b, _ := json.Marshal(jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Use: "sig", Algorithm: "ES256"})
			fmt.Fprintf(w, `{"keys":[%s%s]}`, b, s.extra)
		default:
			http.NotFound(w, r)
		}
	}))
	s.name = s.URL
	t.Cleanup(s.Close)
	return s
}

// turn gives the issuer a new key.
func (s *issuer) turn(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.key, s.id = key, id
}

func (s *issuer) token(t *testing.T, change func(c map[string]any)) string {
	t.Helper()
	c := map[string]any{
		"iss": s.URL, "sub": "alice", "aud": []string{"https://waldo.example.com/mcp"},
		"exp": time.Now().Add(time.Hour).Unix(), "scope": "mcp openid",
	}
	if change != nil {
		change(c)
	}
	return sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, c)
}

func sign(t *testing.T, k jose.SigningKey, c map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(k, (&jose.SignerOptions{}).WithType("at+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *issuer) options() *Options {
	return &Options{
		URL: "https://waldo.example.com/mcp", OIDC: &OIDC{
			Issuer: s.URL, Audience: "https://waldo.example.com/mcp", Scopes: []string{"mcp"},
		},
	}
}

func TestOIDC(t *testing.T) {
	s := newIssuer(t)
	s.extra = `,{"kty":"unheard-of","kid":"x"},{"kty":"oct","kid":"secret",` +
		`"k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}`
	o := s.options()
	good := s.token(t, nil)
	set := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	public, err := json.Marshal(jose.JSONWebKey{Key: s.key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	stranger := newIssuer(t)
	parts := strings.Split(good, ".")
	for _, row := range []struct {
		why, token string
		status     int
		challenge  string
	}{
		{"the control", good, 0, ""},
		{"no token", "", 401, `resource_metadata="https://waldo.example.com/.well-known/oauth-protected-resource/mcp"`},
		{"another issuer's word", s.token(t, set("iss", "https://evil.example.com")), 401, "invalid_token"},
		{"an issuer that begins as ours", s.token(t, set("iss", s.URL+"/")), 401, "invalid_token"},
		{"another's key under our name", stranger.token(t, func(c map[string]any) { c["iss"] = s.URL }),
			401, "invalid_token"},
		{"a token for somebody else", s.token(t, set("aud", "https://other.example.com")), 401, "invalid_token"},
		{"a token for nobody", s.token(t, set("aud", nil)), 401, "invalid_token"},
		{"old", s.token(t, set("exp", time.Now().Add(-2*time.Minute).Unix())), 401, "invalid_token"},
		{"for ever", s.token(t, func(c map[string]any) { delete(c, "exp") }), 401, "invalid_token"},
		{"not yet", s.token(t, set("nbf", time.Now().Add(5*time.Minute).Unix())), 401, "invalid_token"},
		{"nobody's", s.token(t, set("sub", "")), 401, "invalid_token"},
		{"the longest subject", s.token(t, set("sub", strings.Repeat("a", 255))), 0, ""},
		{"a longer subject", s.token(t, set("sub", strings.Repeat("a", 256))), 401, "invalid_token"},
		{"a subject that is no name", s.token(t, set("sub", "a\nb")), 401, "invalid_token"},
		{"without the scope", s.token(t, set("scope", "openid")), 403, `error="insufficient_scope"`},
		{"a scope that begins as ours", s.token(t, set("scope", "mcp:other")), 403, `scope="mcp"`},
		{"not signed", none(t, parts[1]), 401, "invalid_token"},
		{"the signature of another", parts[0] + "." + strings.Split(s.token(t, set("sub", "mallory")), ".")[1] + "." +
			parts[2], 401, "invalid_token"},
		{
			"the public key as a secret", sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: public},
				map[string]any{
					"iss": s.URL, "sub": "a", "aud": "https://waldo.example.com/mcp", "exp": time.Now().Add(time.Hour).Unix(),
					"scope": "mcp",
				}), 401, "invalid_token",
		},
		{"no token at all", "a.b.c", 401, "invalid_token"},
	} {
		header := ""
		if row.token != "" {
			header = "Bearer " + row.token
		}
		who, refusal := o.Identify(request(t, header))
		if row.status == 0 {
			if who != "oidc:alice" && len(who) != len("oidc:")+255 || refusal != nil {
				t.Fatalf("%s: %q %+v", row.why, who, refusal)
			}
			continue
		}
		if refusal == nil || refusal.Status != row.status || !strings.Contains(refusal.Challenge, row.challenge) {
			t.Errorf("%s: %q %+v", row.why, who, refusal)
		}
	}
}

func none(t *testing.T, body string) string {
	t.Helper()
	return "eyJhbGciOiJub25lIn0." + body + "."
}

// An issuer changes its keys, and is not asked for them as often as somebody makes up their names.
func TestKeysTurn(t *testing.T) {
	s := newIssuer(t)
	o := s.options()
	now := time.Now()
	o.OIDC.Now = func() time.Time { return now }
	enter := func(token string) bool {
		t.Helper()
		_, refusal := o.Identify(request(t, "Bearer "+token))
		return refusal == nil
	}
	first := s.token(t, nil)
	if again := enter(first); !again || !enter(first) || s.asked.Load() != 1 {
		t.Fatalf("asked %d times", s.asked.Load())
	}
	s.turn(t, "k2")
	for range 20 {
		if enter(s.token(t, nil)) {
			t.Fatal("before its time")
		}
	}
	if s.asked.Load() != 1 {
		t.Errorf("asked %d times within the time", s.asked.Load())
	}
	now = now.Add(patience)
	if !enter(s.token(t, nil)) || s.asked.Load() != 2 {
		t.Errorf("asked %d times", s.asked.Load())
	}
	if enter(first) {
		t.Error("a key that the issuer has withdrawn still opens")
	}
	s.down.Store(true)
	now = now.Add(fresh + time.Second)
	if !enter(s.token(t, func(c map[string]any) { c["exp"] = now.Add(time.Hour).Unix() })) {
		t.Error("an issuer that is down for a moment locks everybody out")
	}
	now = now.Add(stale)
	if enter(s.token(t, func(c map[string]any) { c["exp"] = now.Add(time.Hour).Unix() })) {
		t.Error("keys a day old still open")
	}
}

func TestMetadata(t *testing.T) {
	s := newIssuer(t)
	s.name = "https://evil.example.com"
	if _, refusal := s.options().Identify(request(t, "Bearer "+s.token(t, nil))); refusal == nil {
		t.Error("metadata that names another issuer was believed")
	}
	w := httptest.NewRecorder()
	h := s.options().Beside()["/.well-known/oauth-protected-resource/mcp"]
	if h == nil {
		t.Fatal("no metadata")
	}
	h.ServeHTTP(w, request(t, ""))
	var about struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	if json.Unmarshal(w.Body.Bytes(), &about) != nil || about.Resource != "https://waldo.example.com/mcp" ||
		len(about.Servers) != 1 || len(about.Scopes) != 1 {
		t.Errorf("%s", w.Body)
	}
	for at, want := range map[string]bool{
		"https://a.example.com": true, "http://127.0.0.1:1": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://a.example.com": false, "http://127.0.0.1.evil.example.com": false, "https://u:p@a.example.com": false,
		"file:///etc/passwd": false, "https://": false, "https://a.example.com/#x": false,
	} {
		if got := Secure(at) == nil; got != want {
			t.Errorf("%s: %v", at, got)
		}
	}
}

// TestKeysAreForSigning: a key that the issuer has for encryption signs no token.
func TestKeysAreForSigning(t *testing.T) {
	s := newIssuer(t)
	if _, refusal := s.options().Identify(request(t, "Bearer "+s.token(t, nil))); refusal != nil {
		t.Fatal("control:", refusal)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The same key and the same token: only the declared use of the key in the issuer's list differs.
	s.key, s.id = other, "other"
	token := s.token(t, nil)
	s.turn(t, "k2")
	for use, good := range map[string]bool{"sig": true, "": true, "enc": false, "x": false} {
		b, err := json.Marshal(jose.JSONWebKey{Key: other.Public(), KeyID: "other", Use: use, Algorithm: "ES256"})
		if err != nil {
			t.Fatal(err)
		}
		s.extra = "," + string(b)
		o := s.options()
		_, refusal := o.Identify(request(t, "Bearer "+token))
		if n := len(o.OIDC.keys.Keys); n != 2 {
			t.Fatalf("control: %d keys were fetched", n)
		}
		if good != (refusal == nil) || !good && !strings.Contains(fmt.Sprint(*refusal), "invalid_token") {
			t.Errorf("a key for %q: %v", use, refusal)
		}
	}
}

// TestKeysNameTheirAlgorithm: a key that the issuer has for one algorithm checks no signature of another.
func TestKeysNameTheirAlgorithm(t *testing.T) {
	s := newIssuer(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{
		"iss": s.URL, "sub": "alice", "aud": "https://waldo.example.com/mcp", "exp": time.Now().Add(time.Hour).Unix(),
		"scope": "mcp",
	}
	token := sign(t, jose.SigningKey{Algorithm: jose.PS256, Key: jose.JSONWebKey{Key: key, KeyID: "r"}}, claims)
	for algorithm, good := range map[string]bool{"": true, "PS256": true, "RS256": false} {
		b, err := json.Marshal(jose.JSONWebKey{Key: key.Public(), KeyID: "r", Use: "sig", Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		s.extra = "," + string(b)
		if _, refusal := s.options().Identify(request(t, "Bearer "+token)); good != (refusal == nil) {
			t.Errorf("a key for %q: %v", algorithm, refusal)
		}
	}
}

// TestKeysAreBounded: an error answer is not believed, and an endless one is not read.
func TestKeysAreBounded(t *testing.T) {
	s := newIssuer(t)
	b, err := json.Marshal(jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Use: "sig", Algorithm: "ES256"})
	if err != nil {
		t.Fatal(err)
	}
	status, after := http.StatusOK, 0
	wrote := make(chan int, 1)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		n, _ := fmt.Fprintf(w, `{"keys":[%s]}`, b)
		for space := bytes.Repeat([]byte(" "), 1<<20); n < after; {
			m, err := w.Write(space)
			if n += m; err != nil {
				break
			}
		}
		wrote <- n
	}))
	defer keys.Close()
	for _, row := range []struct {
		status, after int
		good          bool
	}{{200, 0, true}, {203, 0, false}, {404, 0, false}, {200, 256 << 20, true}} {
		status, after = row.status, row.after
		o := s.options()
		o.OIDC.JWKS = keys.URL
		if _, refusal := o.Identify(request(t, "Bearer "+s.token(t, nil))); row.good != (refusal == nil) {
			t.Errorf("%+v: %v", row, refusal)
		}
		if n := <-wrote; n > 64<<20 {
			t.Errorf("%+v: %d bytes were sent", row, n)
		}
	}
}

// TestKeysAreNotSentElsewhere: a redirect from where the keys are is not followed.
func TestKeysAreNotSentElsewhere(t *testing.T) {
	s := newIssuer(t)
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+"/keys", http.StatusFound)
	}))
	defer redirect.Close()
	for at, want := range map[string]int32{s.URL + "/keys": 1, redirect.URL: 0} {
		before := s.asked.Load()
		o := s.options()
		o.OIDC.JWKS = at
		_, refusal := o.Identify(request(t, "Bearer "+s.token(t, nil)))
		if (refusal == nil) != (want == 1) || s.asked.Load()-before != want {
			t.Errorf("keys at %s: %v, asked %d times, wanted %d", at, refusal, s.asked.Load()-before, want)
		}
	}
}

// listen serves what says who is asking, to this machine.
func listen(t *testing.T, o *Options, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := web.New(web.Options{Server: mcpserver.New(mcpserver.Options{}), Hosts: []string{"127.0.0.1", "::1"},
		Identify: o.Identify, Peer: Peer,
		Open: func(p call.Principal) (call.Session, error) { return "", fmt.Errorf("let in %s", p) }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	return l.Addr().String()
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// Without a token, only the local user that waldo runs as is accepted.
func TestPeer(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := listen(t, &Options{UID: os.Getuid()}, "tcp", address)
		ask := func(uid int) string {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := syscall.Setfsuid(uid); err != nil { // whose socket it is, this thread's file system uid says
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", at)
			if err := syscall.Setfsuid(os.Getuid()); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
				"Connection: close\r\n\r\n%s", len(hello), hello)
			b, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if got := ask(os.Getuid()); !strings.Contains(got, " 503 ") { // accepted, but without a backend
			t.Fatalf("the control: %s", got)
		}
		if os.Getuid() != 0 {
			t.Log("not root: only the control was asked, since nobody can be another user here")
			continue
		}
		if got := ask(12345); !strings.Contains(got, " 403 ") {
			t.Errorf("another user: %s", got)
		}
	}
	if _, err := Peer(far{}); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("a connection from another machine: %v", err)
	}
	o := &Options{UID: os.Getuid()}
	if who, refusal := o.Identify(request(t, "")); refusal == nil || who != "" {
		t.Errorf("nobody knows who, and %q is let in", who)
	}
}

// far is a connection from another machine.
type far struct{ net.Conn }

func (far) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (far) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 2} }
