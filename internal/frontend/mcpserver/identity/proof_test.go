package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"waldo/internal/model/call"
)

// TestProofs: a proof holds for one request, once; everything else is refused.
func TestProofs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now, ids := time.Now(), 0
	sum, _ := (&jose.JSONWebKey{Key: &key.PublicKey}).Thumbprint(crypto.SHA256)
	sign := func(kind jose.ContentType, embed bool, change func(map[string]any)) string {
		ids++
		claims := map[string]any{"jti": "j" + string(rune('a'+ids)), "htm": "POST",
			"htu": "http://127.0.0.1:7676/mcp", "iat": now.Unix(), "ath": "x"}
		change(claims)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
			(&jose.SignerOptions{EmbedJWK: embed}).WithType(kind))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := json.Marshal(claims)
		s, err := signer.Sign(body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	with := func(name string, v any) string { return sign("dpop+jwt", true, func(c map[string]any) { c[name] = v }) }
	good := sign("dpop+jwt", true, func(map[string]any) {})
	forged := strings.Split(good, ".")
	otherKey, _ := (&jose.JSONWebKey{Key: &other.PublicKey}).MarshalJSON()
	head, _ := json.Marshal(map[string]any{"alg": "ES256", "typ": "dpop+jwt", "jwk": json.RawMessage(otherKey)})
	forged[0] = base64.RawURLEncoding.EncodeToString(head)
	private, _ := (&jose.JSONWebKey{Key: key}).MarshalJSON()
	leaks, _ := json.Marshal(map[string]any{"alg": "ES256", "typ": "dpop+jwt", "jwk": json.RawMessage(private)})
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"dpop+jwt"}`)) + "." + forged[1] + "."
	p := NewProofs(now.Add(-30 * time.Second))
	for _, row := range []struct{ why, text, want string }{
		{"control", good, ""},
		{"again", good, "used before"},
		{"control: at the gateway's URL", with("htu", "https://waldo.example.com/mcp"), ""},
		{"control: another id", with("jti", "zz"), ""},
		{"another method", with("htm", "GET"), "another request"},
		{"another path", with("htu", "http://127.0.0.1:7676/a2a"), "another request"},
		{"another host", with("htu", "http://evil.example/mcp"), "another request"},
		{"another scheme", with("htu", "https://127.0.0.1:7676/mcp"), "another request"},
		{"a user in the URL", with("htu", "http://x@127.0.0.1:7676/mcp"), "another request"},
		{"too old", with("iat", now.Add(-2*time.Minute).Unix()), "a minute off"},
		{"of the future", with("iat", now.Add(2*time.Minute).Unix()), "a minute off"},
		{"before this process", with("iat", now.Add(-40*time.Second).Unix()), "older than this process"},
		{"without an id", with("jti", ""), "must be there"},
		{"without a token", with("ath", ""), "must be there"},
		{"another type", sign("JWT", true, func(map[string]any) {}), "typ dpop+jwt"},
		{"without its key", sign("dpop+jwt", false, func(map[string]any) {}), "public jwk"},
		{"another key in it", strings.Join(forged, "."), "does not fit"},
		{"its private key in it", base64.RawURLEncoding.EncodeToString(leaks) + "." +
			strings.Join(strings.Split(with("jti", "y"), ".")[1:], "."), "ES256"},
		{"without a signature", none, "ES256"},
		{"not a JWT", "x", "ES256"},
		{"too long", strings.Repeat("x", maxProof+1), "4096"},
	} {
		r := httptest.NewRequest("POST", "http://127.0.0.1:7676/mcp?x=1", nil)
		r.Header["Dpop"] = []string{row.text}
		got, refusal := p.Verify("token:ann", r, "https://waldo.example.com/mcp")
		if row.want == "" && (refusal != nil || got.Token != "x" || got.Key != base64.RawURLEncoding.EncodeToString(sum)) {
			t.Errorf("%s: %+v %+v", row.why, got, refusal)
		}
		if row.want != "" && (refusal == nil || !strings.Contains(refusal.Why, row.want) ||
			refusal.Status != http.StatusUnauthorized || got.Key != "") {
			t.Errorf("%s: %+v %+v", row.why, got, refusal)
		}
	}
	r := httptest.NewRequest("POST", "http://127.0.0.1:7676/mcp", nil)
	if got, refusal := p.Verify("token:ann", r, ""); refusal != nil || got.Key != "" {
		t.Errorf("without a proof: %+v %+v", got, refusal)
	}
	r.Header["Dpop"] = []string{with("jti", "p"), with("jti", "q")}
	if _, refusal := p.Verify("token:ann", r, ""); refusal == nil {
		t.Error("two proofs are taken")
	}
}

// TestProofsOfMany: a principal that proves without end takes its own room alone, and all take no more than there is.
func TestProofsOfMany(t *testing.T) {
	now := time.Now()
	p := NewProofs(now)
	fill := func(who call.Principal, n int) (refused int) {
		for range n {
			if p.once(who, rand.Text(), now, now) != nil {
				refused++
			}
		}
		return refused
	}
	if n := fill("token:mallory", maxProofs); n != maxProofs-mostEach {
		t.Errorf("%d of one principal are taken", maxProofs-n)
	}
	if err := p.once("token:mallory", "more", now, now); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("beyond its bound: %v", err)
	}
	if err := p.once("token:ann", "x", now, now); err != nil {
		t.Errorf("control: of another: %v", err)
	}
	for i := range maxProofs / mostEach {
		fill(call.Principal("token:"+strings.Repeat("m", i+1)), mostEach)
	}
	if n := fill("token:bob", 2*fewEach); p.n > maxProofs+2*fewEach || n != fewEach {
		t.Errorf("%d in all, %d of the last principal refused", p.n, n)
	}
	if err := p.once("token:ann", "x", now, now); err == nil || !strings.Contains(err.Error(), "used before") {
		t.Errorf("again: %v", err)
	}
	if later := now.Add(3 * proofAge); p.once("token:mallory", "later", later, later) != nil || p.n != 1 || len(p.seen) != 1 {
		t.Errorf("%d of %d principals are remembered after their time", p.n, len(p.seen))
	}
}

// FuzzProof: a text that no key signed is refused.
func FuzzProof(f *testing.F) {
	f.Add("x")
	f.Add("e30.e30.e30")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"dpop+jwt","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`)) + ".e30.AA")
	f.Fuzz(func(t *testing.T, text string) {
		r := httptest.NewRequest("POST", "http://127.0.0.1:7676/mcp", nil)
		r.Header["Dpop"] = []string{text}
		if got, refusal := NewProofs(time.Now()).Verify("token:ann", r, ""); refusal == nil || got.Key != "" {
			t.Errorf("%q is taken as %+v", text, got)
		}
	})
}
