package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The key, the proofs and the access token of RFC 9449, figures 2 and 13.
const (
	figureKey   = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	figureHead  = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19"
	figure2     = "eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ"
	figure2sig  = "2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg"
	figure13    = "eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9"
	figure13sig = "2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
	figureToken = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
)

// TestProofVectors: the claims of a proof are those of the RFC byte for byte, and the checker of these tests accepts
// the proof of the RFC.
func TestProofVectors(t *testing.T) {
	for _, row := range []struct {
		method, address, token, id string
		at                         int64
		claims, signature          string
	}{
		{"POST", "https://server.example.com/token?x=y", "", "-BwC3ESc6acc2lTc", 1562262616, figure2, figure2sig},
		{"GET", "https://resource.example.org/protectedresource#x", figureToken, "e1j3V_bKic8-LAEB", 1562262618,
			figure13, figure13sig},
	} {
		u, err := url.Parse(row.address)
		if err != nil {
			t.Fatal(err)
		}
		p := proofOf(&http.Request{Method: row.method, URL: u}, row.token, "")
		p.ID, p.At = row.id, row.at
		b, err := json.Marshal(p)
		if got := base64.RawURLEncoding.EncodeToString(b); err != nil || got != row.claims {
			t.Errorf("%s: %s %v", row.address, b, err)
		}
		got, key, err := opened(figureHead + "." + row.claims + "." + row.signature)
		if err != nil || got != p || key != figureKey {
			t.Errorf("%s: %+v by %s: %v", row.address, got, key, err)
		}
		if _, _, err := opened(figureHead + "." + row.claims + "." +
			strings.Replace(row.signature, "g", "h", 1)); err == nil {
			t.Error("another signature is taken")
		}
	}
}

// opened reads a proof as RFC 9449 §4.3 says, and returns the thumbprint of its key.
func opened(text string) (p proof, key string, err error) {
	s, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return p, "", err
	}
	h := s.Signatures[0].Header
	if h.JSONWebKey == nil || !h.JSONWebKey.IsPublic() || h.ExtraHeaders[jose.HeaderType] != "dpop+jwt" {
		return p, "", errors.New("not the header of a proof")
	}
	b, err := s.Verify(h.JSONWebKey)
	if err != nil {
		return p, "", err
	}
	return p, thumbprint(h.JSONWebKey), json.Unmarshal(b, &p)
}

// prover is a server that takes requests with a proof alone. The zero value wants no nonce.
type prover struct {
	mu    sync.Mutex
	seen  map[string]bool // jti
	keys  map[string]bool // thumbprints
	nonce string
}

// check returns why a request is refused. place is the server's own address.
func (v *prover) check(r *http.Request, place, token string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen == nil {
		v.seen, v.keys = map[string]bool{}, map[string]bool{}
	}
	all := r.Header.Values("DPoP")
	if len(all) != 1 {
		return fmt.Sprintf("%d proofs", len(all))
	}
	p, key, err := opened(all[0])
	sum, ath := sha256.Sum256([]byte(token)), ""
	if token != "" {
		ath = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	switch {
	case err != nil:
		return err.Error()
	case p.Method != r.Method:
		return "htm"
	case p.URL != place+r.URL.EscapedPath():
		return "htu " + p.URL
	case p.Token != ath:
		return "ath"
	case time.Since(time.Unix(p.At, 0)).Abs() > time.Minute:
		return "iat"
	case len(p.ID) < 16 || v.seen[p.ID]:
		return "replay"
	case v.nonce != "" && p.Nonce != v.nonce:
		return "use_dpop_nonce"
	}
	v.seen[p.ID], v.keys[key] = true, true
	return ""
}

// bound is an issuer with DPoP and a server that takes its tokens with a proof alone.
type bound struct {
	*issuer
	as, rs   prover
	mcp      []*http.Request // requests that the server took
	refusals []string
	moved    string // the server leads there
}

func newBound(t *testing.T) *bound {
	b := &bound{issuer: newIssuer(t)}
	inner := b.issuer
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case r.URL.Path == "/token" && (b.change == nil || r.Header.Get("DPoP") != ""):
			if why := b.as.check(r, b.url, ""); why != "" {
				b.refusals = append(b.refusals, why)
				w.Header().Set("DPoP-Nonce", b.as.nonce)
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
				return
			}
		case r.URL.Path == "/mcp" && b.moved != "":
			http.Redirect(w, r, b.moved, http.StatusTemporaryRedirect)
			return
		case (r.URL.Path == "/mcp" || r.URL.Path == "/mcp/x") && r.Header.Get("Authorization") != "":
			token, is := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
			why := "no DPoP"
			if is {
				why = b.rs.check(r, b.url, token)
			}
			if why != "" {
				b.refusals = append(b.refusals, why)
				w.Header().Set("DPoP-Nonce", b.rs.nonce)
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`DPoP error=%q, algs="ES256"`, why))
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = io.Copy(w, r.Body)
			b.mcp = append(b.mcp, r)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	inner.url = srv.URL
	b.change = b.offer
	return b
}

// offer is the issuer's list: DPoP, and tokens of that kind.
func (b *bound) offer(place string, d map[string]any) {
	switch place {
	case "issuer":
		d["dpop_signing_alg_values_supported"] = []string{"RS256", "ES256"}
	case "token":
		d["token_type"] = "DPoP"
	}
}

// ask makes a request to the server as a connection does.
func ask(t *testing.T, c *Client, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, c.Server, strings.NewReader("a message"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Transport: c.Transport()}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestBoundTokens: where the issuer offers DPoP, each request has a proof of its own for exactly itself.
func TestBoundTokens(t *testing.T) {
	b := newBound(t)
	b.lasts = 20 // is renewed at once
	b.as.nonce, b.rs.nonce = "n-as", "n-rs"
	store := &memory{}
	c := b.client(store)
	if err := c.Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b.pages[0].Get("dpop_jkt") == "" || !b.as.keys[b.pages[0].Get("dpop_jkt")] ||
		b.clients[0]["dpop_bound_access_tokens"] != true {
		t.Errorf("the page is not for the key: %v %v", b.pages[0], b.clients[0])
	}
	again := b.client(store) // another process has the same key
	again.Browser = nil
	b.lasts = 3600
	token, err := again.Token(context.Background())
	if err != nil || token != "token-2" || len(b.as.keys) != 1 {
		t.Fatalf("renewal: %q %v, %d keys", token, err, len(b.as.keys))
	}
	for n := range 3 {
		if status, body := ask(t, again, token); status != http.StatusOK || body != "a message" {
			t.Fatalf("request %d: %d %q %v", n, status, body, b.refusals)
		}
	}
	// two processes, the server
	if want := []string{"use_dpop_nonce", "use_dpop_nonce", "use_dpop_nonce"}; !slices.Equal(b.refusals, want) {
		t.Errorf("%v", b.refusals)
	}
	b.moved = "/mcp/x"
	if status, body := ask(t, again, token); status != http.StatusOK || body != "a message" {
		t.Errorf("after a redirect within the server: %d %q %v", status, body, b.refusals)
	}
	b.moved = ""
	// A proof that somebody has seen is of no use: neither again, nor elsewhere, nor with another token or method.
	seen := b.mcp[0]
	for why, change := range map[string]func(r *http.Request){
		"replay": func(*http.Request) {}, "htu": func(r *http.Request) { r.URL.Path = "/mcp/x" },
		"htm":     func(r *http.Request) { r.Method = "PUT" },
		"ath":     func(r *http.Request) { r.Header.Set("Authorization", "DPoP other") },
		"no DPoP": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) },
	} {
		u, _ := url.Parse(b.url + "/mcp")
		r := &http.Request{Method: seen.Method, URL: u, Header: seen.Header.Clone()}
		change(r)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if !strings.Contains(resp.Header.Get("WWW-Authenticate"), why) {
			t.Errorf("%s: %d %v", why, resp.StatusCode, resp.Header)
		}
	}
	if b.elsewhere != 0 {
		t.Errorf("%d requests to places that are not there", b.elsewhere)
	}
}

// A server that asks for a new nonce each time gets one more request, not more.
func TestNonceLoop(t *testing.T) {
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("DPoP-Nonce", fmt.Sprint("n", n))
		w.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Server: srv.URL, HTTP: http.DefaultTransport, kept: stored{Key: key}, loaded: true}
	if status, _ := ask(t, c, "t"); status != http.StatusUnauthorized || n != 2 {
		t.Errorf("%d after %d requests", status, n)
	}
}

// TestDowngrade: a login that is bound, or must be, never goes on with a bearer token.
func TestDowngrade(t *testing.T) {
	silent := func(place string, d map[string]any) {}
	for _, row := range []struct {
		why, dpop string
		first     bool // a bound login exists
		change    func(b *bound) func(place string, d map[string]any)
		want      string
		kind      string // of the token that is sent
	}{
		{"control: offered and given", "", false, nil, "", "DPoP"},
		{"control: not offered", "", false, func(*bound) func(string, map[string]any) { return silent }, "", "Bearer"},
		{"control: never", "never", false, func(b *bound) func(string, map[string]any) {
			return func(place string, d map[string]any) {
				if place == "issuer" {
					b.offer(place, d)
				}
			}
		}, "", "Bearer"},
		{"never, after a bound login", "never", true, func(*bound) func(string, map[string]any) { return silent },
			"", "Bearer"},
		{"offered, and a bearer token given", "", false, func(b *bound) func(string, map[string]any) {
			return func(place string, d map[string]any) {
				if place == "issuer" {
					b.offer(place, d)
				}
			}
		}, "gives no DPoP token", ""},
		{"a DPoP token without a key", "", false, func(b *bound) func(string, map[string]any) {
			return func(place string, d map[string]any) {
				if place == "token" {
					b.offer(place, d)
				}
			}
		}, "gives no bearer token", ""},
		{"no longer offered", "", true, func(*bound) func(string, map[string]any) { return silent },
			"does not offer DPoP", ""},
		{"required and not offered", "required", false, func(*bound) func(string, map[string]any) { return silent },
			"does not offer DPoP", ""},
		{"the server takes no other", "", false, func(*bound) func(string, map[string]any) {
			return func(place string, d map[string]any) {
				if place == "resource" {
					d["dpop_bound_access_tokens_required"] = true
				}
			}
		}, "does not offer DPoP", ""},
		{"offered with other algorithms", "required", false, func(*bound) func(string, map[string]any) {
			return func(place string, d map[string]any) {
				if place == "issuer" {
					d["dpop_signing_alg_values_supported"] = []string{"none", "HS256"}
				}
			}
		}, "does not offer DPoP", ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			b := newBound(t)
			store := &memory{}
			if row.first {
				if err := b.client(store).Login(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if row.change != nil {
				b.change = row.change(b)
			}
			c := b.client(store)
			c.Config.DPoP = row.dpop
			before := len(b.asked)
			err := c.Login(context.Background())
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Fatalf("%v", err)
			}
			if strings.HasPrefix(row.want, "does not offer") && len(b.asked) != before {
				t.Error("a token was requested")
			}
			if row.want != "" {
				return
			}
			token, err := c.Token(context.Background())
			if err != nil || token == "" {
				t.Fatalf("%q %v", token, err)
			}
			status, _ := ask(t, c, token)
			if (status == http.StatusOK) != (row.kind == "DPoP") {
				t.Errorf("%d %v", status, b.refusals)
			}
		})
	}
	b := newBound(t)
	b.change = nil
	store := &memory{b: []byte(`{"issuer":"x","access":"a-bearer-token"}`)}
	for dpop, want := range map[string]string{"": "a-bearer-token", "required": ""} {
		c := b.client(store)
		c.Config.DPoP = dpop
		if token, err := c.Token(context.Background()); err != nil || token != want {
			t.Errorf("%q: a stored bearer token: %q %v", dpop, token, err)
		}
	}
}

// The key lies in the store alone: no request and no learned value holds it.
func TestProofKeyStaysInTheStore(t *testing.T) {
	b := newBound(t)
	store, heard := &memory{}, &strings.Builder{}
	c := b.client(store)
	c.HTTP = roundTrip(func(r *http.Request) (*http.Response, error) {
		_ = r.Header.Write(heard)
		if r.GetBody != nil {
			body, _ := r.GetBody()
			_, _ = io.Copy(heard, body)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	if err := c.Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	if status, _ := ask(t, c, "token-1"); status != http.StatusOK {
		t.Fatal(status)
	}
	var kept struct {
		Key struct{ D string } `json:"dpop_key"`
	}
	if err := json.Unmarshal(store.b, &kept); err != nil || len(kept.Key.D) < 40 {
		t.Fatalf("%s %v", store.b, err)
	}
	for _, part := range strings.FieldsFunc(heard.String(), func(r rune) bool {
		return strings.ContainsRune(". :&=\r\n", r)
	}) {
		text, _ := base64.RawURLEncoding.DecodeString(part)
		if strings.Contains(string(text), kept.Key.D) || strings.Contains(part, kept.Key.D) {
			t.Errorf("sent: %s", text)
		}
	}
	if !strings.Contains(heard.String(), "Dpop: ") {
		t.Error("control: no proof was sent")
	}
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAssertion: a client with a key shows itself by a JWT for its issuer alone, each time another.
func TestAssertion(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	jwk, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: "k1"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[any]bool{}
	for form, text := range map[string]string{
		"PEM": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "JWK": string(jwk),
	} {
		i := newIssuer(t)
		takes := []string{"private_key_jwt"}
		i.change = func(place string, d map[string]any) {
			if place == "issuer" {
				d["token_endpoint_auth_methods_supported"] = takes
			}
		}
		c := i.client(&memory{})
		c.Config = Config{Grant: "client_credentials", ClientID: "w", Key: func() (string, error) { return text, nil }}
		for range 2 {
			if err := c.Login(context.Background()); err != nil {
				t.Fatal(form, err)
			}
			q := i.asked[len(i.asked)-1]
			s, err := jose.ParseSignedCompact(q.Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
			if err != nil {
				t.Fatal(form, err)
			}
			b, err := s.Verify(key.Public())
			if err != nil {
				t.Fatal(form, err)
			}
			var got map[string]any
			_ = json.Unmarshal(b, &got)
			exp, _ := got["exp"].(float64)
			if got["iss"] != "w" || got["sub"] != "w" || got["aud"] != i.url || seen[got["jti"]] ||
				exp > float64(time.Now().Add(2*time.Minute).Unix()) ||
				q.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" ||
				q.Has("client_secret") || i.auth[0] != "" {
				t.Errorf("%s: %s %v", form, b, q)
			}
			if want := map[string]string{"PEM": "", "JWK": "k1"}[form]; s.Signatures[0].Header.KeyID != want {
				t.Errorf("%s: kid %q", form, s.Signatures[0].Header.KeyID)
			}
			seen[got["jti"]] = true
		}
		takes = []string{"client_secret_basic", "none"}
		if err := c.Login(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "does not take private_key_jwt") || len(i.asked) != 2 {
			t.Errorf("%s: an issuer without private_key_jwt: %v", form, err)
		}
	}
	public, _ := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	for why, text := range map[string]string{
		"a public key": string(public), "a symmetric key": `{"kty":"oct","k":"AAAA"}`, "words": "words",
		"another algorithm": strings.Replace(string(jwk), "{", `{"alg":"HS256",`, 1),
	} {
		if _, err := privateKey(text); err == nil {
			t.Errorf("%s is taken", why)
		}
	}
}

// A client that registers itself makes a key where the issuer takes nothing weaker.
func TestRegistersWithAKey(t *testing.T) {
	i := newIssuer(t)
	i.change = func(place string, d map[string]any) {
		switch place {
		case "issuer":
			d["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic", "private_key_jwt"}
		case "client":
			d["token_endpoint_auth_method"] = "private_key_jwt"
		}
	}
	if err := i.client(&memory{}).Login(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(i.clients[0]["jwks"])
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(b, &set); err != nil || len(set.Keys) != 1 || !set.Keys[0].IsPublic() {
		t.Fatalf("%s %v", b, err)
	}
	s, err := jose.ParseSignedCompact(i.asked[0].Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(set.Keys[0]); err != nil {
		t.Error(err)
	}
}

// TestTokenEndpoint: answers that x/oauth2 by itself would follow or read are refused.
func TestTokenEndpoint(t *testing.T) {
	const good = `{"access_token":"t1","token_type":"Bearer"}`
	for _, row := range []struct {
		why, kind, body string
		status          int
		want            string
	}{
		{"control", "application/json", good, 200, ""},
		{"control: JSON by another name", "text/plain", good, 200, ""},
		{"a redirect", "text/plain", "", 307, "HTTP status 307"},
		{"a form", "application/x-www-form-urlencoded", "access_token=t1&token_type=Bearer", 200, "not JSON"},
		{"a name twice", "application/json", `{"access_token":"t0","access_token":"t1","token_type":"Bearer"}`, 200,
			"not JSON"},
		{"more than is read", "application/json", good + strings.Repeat(" ", maxBody), 200, "more than"},
		{"an error that is long", "application/json", `{"error":"x"}` + strings.Repeat(" ", maxBody), 400, "more than"},
		{"an error with other characters", "application/json", `{"error":"a\u001b[2J"}`, 400, "HTTP status 400"},
	} {
		t.Run(row.why, func(t *testing.T) {
			led := false
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/led" {
					led = true
				}
				w.Header().Set("Content-Type", row.kind)
				w.Header().Set("Location", "/led")
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			}))
			defer srv.Close()
			c := &Client{
				Server: srv.URL, HTTP: http.DefaultTransport, Store: &memory{},
				kept: stored{Client: client{ID: "w", Method: "none"}},
			}
			err := c.token(context.Background(), srv.URL+"/token", nil, url.Values{"grant_type": {"refresh_token"}})
			if row.want == "" && (err != nil || c.kept.Access != "t1") ||
				row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) || led {
				t.Errorf("%v %q, led away %v", err, c.kept.Access, led)
			}
		})
	}
}
