package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"waldo/internal/testing/issuertest"
)

// TestRealIssuer: oidc-provider issues tokens for waldo's proofs and assertions, and refuses those of others.
func TestRealIssuer(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: "k1", Algorithm: "ES256"}
	issuer := issuertest.Start(t, issuertest.DPoP, key.Public())
	var rs prover
	rs.nonce = "n-1"
	srv := httptest.NewServer(nil)
	defer srv.Close()
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			_ = json.NewEncoder(w).Encode(map[string]any{
				"resource": srv.URL + "/mcp", "authorization_servers": []string{issuer.URL}, "scopes_supported": []string{"read"},
			})
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
		why := rs.check(r, srv.URL, token)
		if why == "" && !rs.keys[boundTo(token)] {
			why = "another key"
		}
		if why != "" {
			w.Header().Set("DPoP-Nonce", rs.nonce)
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("DPoP error=%q", why))
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	text, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	machine := Config{
		Grant: "client_credentials", ClientID: "machine", Key: func() (string, error) { return string(text), nil },
	}
	client := func(store *memory, config Config) *Client {
		return &Client{
			Server: srv.URL + "/mcp", HTTP: http.DefaultTransport, Store: store, Browser: consenting(issuer),
			Name: "waldo", Config: config,
		}
	}
	for why, config := range map[string]Config{"a machine": machine, "a person": {Grant: "authorization_code"}} {
		store := &memory{}
		c := client(store, config)
		if err := c.Login(context.Background()); err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		first := c.kept.Access
		if status, _ := ask(t, c, first); status != http.StatusOK {
			t.Errorf("%s: the server answers %d", why, status)
		}
		if config.Grant == "authorization_code" {
			c = client(store, config) // its token is over at once, and renewed with the same key
			if token, err := c.Token(context.Background()); err != nil || token == "" || token == first ||
				boundTo(token) != boundTo(first) {
				t.Errorf("%s: renewal: %q after %q: %v", why, token, first, err)
			} else if status, _ := ask(t, c, token); status != http.StatusOK {
				t.Errorf("%s: after renewal the server answers %d", why, status)
			}
			thief := client(&memory{b: store.b}, config)
			if err := thief.load(); err != nil {
				t.Fatal(err)
			}
			if thief.kept.Client.Key, err = newKey(); err != nil {
				t.Fatal(err)
			}
			if err := thief.refresh(context.Background()); err == nil || !strings.Contains(err.Error(), "invalid_client") {
				t.Errorf("a refresh token without the client's key: %v", err)
			}
		}
	}
	// The issuer refuses requests like waldo's that lack or bend one thing.
	for _, row := range []struct {
		why    string
		change func(c *Client)
		want   string
	}{
		{"control", func(*Client) {}, ""},
		{"a client's key of another", func(c *Client) {
			other, _ := newKey()
			b, _ := json.Marshal(other)
			c.Config.Key = func() (string, error) { return string(b), nil }
		}, "invalid_client"},
		{"no proof", func(c *Client) { c.HTTP = changing(func(r *http.Request) { r.Header.Del("DPoP") }) }, "invalid_grant"},
		{"a proof of another request", func(c *Client) {
			c.HTTP = changing(func(r *http.Request) {
				p := proofOf(&http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: r.URL.Host, Path: "/other"}}, "", "")
				text, _ := p.signed(c.kept.Key)
				r.Header.Set("DPoP", text)
			})
		}, "invalid_dpop_proof"},
		{"a request that was made before", func(c *Client) {
			c.HTTP = changing(func(r *http.Request) {
				resp, err := http.DefaultTransport.RoundTrip(r.Clone(r.Context()))
				if err == nil {
					_ = resp.Body.Close()
				}
				r.Body, _ = r.GetBody()
			})
		}, "invalid_client"},
	} {
		c := client(&memory{}, machine)
		row.change(c)
		err := c.Login(context.Background())
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}

// changing is a transport that bends requests to the token endpoint.
func changing(change func(r *http.Request)) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/token" {
			change(r)
		}
		return http.DefaultTransport.RoundTrip(r)
	}
}

// boundTo returns the thumbprint that a JWT names as its holder's.
func boundTo(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var c struct{ CNF struct{ JKT string } }
	b, _ := base64.RawURLEncoding.DecodeString(parts[1])
	_ = json.Unmarshal(b, &c)
	return c.CNF.JKT
}

// consenting is a person with a browser, who fills in the issuer's forms and comes back.
func consenting(s *issuertest.Issuer) func(context.Context, string) error {
	return func(_ context.Context, page string) error {
		back, err := s.Consent(page, "ann")
		if err != nil {
			return err
		}
		resp, err := http.Get(back.String())
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
}
