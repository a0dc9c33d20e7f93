package a2a

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/app"
	"waldo/internal/core/delegation"
	"waldo/internal/model/contract"
)

// holder has a key, and makes proofs of it.
type holder struct {
	t     *testing.T
	key   *ecdsa.PrivateKey
	token string // that the proofs are for
	login string
}

func newHolder(t *testing.T) *holder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &holder{t: t, key: key}
}

func (h *holder) thumbprint() string {
	sum, err := (&jose.JSONWebKey{Key: &h.key.PublicKey}).Thumbprint(crypto.SHA256)
	if err != nil {
		h.t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sum)
}

func (h *holder) proof(method, url string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: h.key},
		(&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		h.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(h.token))
	body, _ := json.Marshal(map[string]any{"jti": rand.Text(), "htm": method, "htu": url, "iat": time.Now().Unix(),
		"ath": base64.RawURLEncoding.EncodeToString(sum[:])})
	s, err := signer.Sign(body)
	if err != nil {
		h.t.Fatal(err)
	}
	text, err := s.CompactSerialize()
	if err != nil {
		h.t.Fatal(err)
	}
	return text
}

// RoundTrip makes each request with a proof, if there is a token that it is for.
func (h *holder) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+h.login)
	if h.token != "" {
		r.Header.Set("DPoP", h.proof(r.Method, r.URL.String()))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestBoundToken: a token that is bound to a key works with proofs of that key alone, over A2A and MCP, and not in a
// process.
func TestBoundToken(t *testing.T) {
	b := newBench(t, "")
	other := *b // another process of the state directory
	other.start(b.file())
	defer func() { other.stop() }()
	mine, thief := newHolder(t), newHolder(t)
	mine.login, thief.login = b.token, b.token
	token, link, why, err := b.h.Delegate(t.Context(), "", "token:ann", delegation.Request{For: "token:ann",
		Lifetime: time.Hour,
		Key:      mine.thumbprint(), Bounds: delegation.Bounds{Allow: []contract.Pattern{"t.echo"}, Danger: 1, Calls: 50}})
	if err != nil || why != nil || link.Key != mine.thumbprint() {
		t.Fatal(why, err, link)
	}
	mine.token, thief.token = token, token
	at := b.url + "/a2a/message:send"
	used := mine.proof("POST", at)
	for _, row := range []struct {
		why, proof, want string
		status           int
	}{
		{"control", used, string(Completed), 200},
		{"the same proof again", used, "used before", 401},
		{"without a proof", "", "delegation.proof", 400},
		{"a proof of another key", thief.proof("POST", at), "delegation.proof", 400},
		{"a proof for another token", (&holder{t, mine.key, "other", ""}).proof("POST", at), "delegation.proof", 400},
		{"a proof for another place", mine.proof("POST", b.url+"/mcp"), "another request", 401},
		{"control: a new proof", mine.proof("POST", at), string(Completed), 200},
	} {
		var headers []string
		if row.proof != "" {
			headers = []string{"DPoP", row.proof}
		}
		resp, body := b.do("POST", "/a2a/message:send", underToken("t.echo", `"`+token+`"`), headers...)
		if !strings.Contains(body, row.want) || resp.StatusCode != row.status {
			t.Errorf("%s: %d %s", row.why, resp.StatusCode, body)
		}
	}
	for who, want := range map[*holder]string{mine: "echo x", thief: "delegation.proof", {t: t, key: mine.key,
		login: b.token}: "delegation.proof"} {
		r, err := b.mcp(who).CallTool(t.Context(), &mcp.CallToolParams{Name: "t__echo", Arguments: map[string]any{"text": "x"},
			Meta: mcp.Meta{"waldo/delegation": token}})
		if err != nil {
			t.Fatal(err)
		}
		said, _ := json.Marshal(r.Content)
		if !strings.Contains(string(said), want) {
			t.Errorf("over MCP: %s, want %s", said, want)
		}
	}
	host := strings.TrimPrefix(b.url, "http://")
	for proof, want := range map[string]string{used: "used before", mine.proof("POST", at): string(Completed)} {
		if _, body := other.do("POST", "/a2a/message:send", underToken("t.echo", `"`+token+`"`), "Host", host, "DPoP",
			proof); !strings.Contains(body, want) {
			t.Errorf("at another process: %s, want %s", body, want)
		}
	}
	rest := b.url + "/api/v1/calls"
	for _, row := range []struct {
		why, token, proof, method, path, want string
		status                                int
	}{
		{"REST, control", token, mine.proof("POST", rest), "POST", "calls", "echo x", 200},
		{"REST, without a proof", token, "", "POST", "calls", "delegation.proof", 403},
		{"REST, a proof of another key", token, thief.proof("POST", rest), "POST", "calls", "delegation.proof", 403},
		{"REST, a proof for another place", token, used, "POST", "calls", "another request", 401},
		{"REST, another capability", token, mine.proof("POST", rest), "POST", "calls?hidden", "delegation.capability", 403},
		{"REST, an empty token", "", "", "POST", "calls", "delegation.malformed", 403},
		{"REST, the list", token, mine.proof("GET", b.url+"/api/v1/tools"), "GET", "tools", `"t.echo"`, 200},
		{"REST, the list without a proof", token, "", "GET", "tools", "delegation.proof", 403},
		{"REST, a sandbox", token, mine.proof("POST", b.url+"/api/v1/sandboxes"), "POST", "sandboxes", "delegation.capability", 403},
		{"REST, to remove one", token, mine.proof("DELETE", b.url+"/api/v1/sandboxes/x"), "DELETE", "sandboxes/x",
			"delegation.capability", 403},
	} {
		capability, body := "t.echo", `{"name":"x"}`
		if strings.HasSuffix(row.path, "hidden") {
			capability = "t.hidden"
		}
		if strings.HasPrefix(row.path, "calls") {
			body = `{"capability":"` + capability + `","arguments":{"text":"x"}}`
		}
		headers := []string{"Waldo-Delegation", row.token}
		if row.proof != "" {
			headers = append(headers, "DPoP", row.proof)
		}
		resp, answer := b.do(row.method, "/api/v1/"+row.path, body, headers...)
		if !strings.Contains(answer, row.want) || resp.StatusCode != row.status || strings.Contains(answer, `"t.note"`) {
			t.Errorf("%s: %d %s", row.why, resp.StatusCode, answer)
		}
	}
	for key, want := range map[string]string{"": "", mine.thumbprint(): "delegation.proof"} {
		token, _, why, err := b.h.Delegate(t.Context(), "", app.Principal(), delegation.Request{For: app.Principal(),
			Lifetime: time.Hour,
			Key:      key, Bounds: delegation.Bounds{Allow: []contract.Pattern{"t.echo"}, Danger: 1, Calls: 5}})
		if err != nil || why != nil {
			t.Fatal(why, err)
		}
		h, err := app.New(t.Context(), app.Options{State: b.state, Delegation: &token, Cfg: b.h.Config})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("in a process: %v, want %q", err, want)
		}
		if err == nil {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, why, err := b.h.Delegate(t.Context(), "", app.Principal(), delegation.Request{For: app.Principal(),
		Lifetime: time.Hour, Key: "x",
		Bounds: delegation.Bounds{Allow: []contract.Pattern{"t.echo"}, Danger: 1, Calls: 5}}); err != nil ||
		why == nil || why.Code != "delegation.request" {
		t.Errorf("a key that is not a thumbprint: %v %v", why, err)
	}
}
