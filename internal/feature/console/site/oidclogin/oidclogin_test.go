package oidclogin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"

	"waldo/internal/feature/console/site"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// flowLife is how long a login at the issuer may take.
const flowLife = 10 * time.Minute

// issuer is an OpenID provider for tests. It hands out one code for each visit of its login page.
type issuer struct {
	*httptest.Server
	key     *ecdsa.PrivateKey
	asked   map[string]url.Values // parameters of its page, by code
	reuse   bool                  // it takes a code twice
	lax     bool                  // it compares no verifier
	claims  map[string]any        // in place of the ID token's own; nil: left out
	names   bool                  // it promises iss in its answers
	got     []url.Values          // requests of tokens
	basic   []string              // their Authorization headers
	methods string                // JSON
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &issuer{key: key, asked: map[string]url.Values{}, claims: map[string]any{}, methods: `["client_secret_post"]`}
	mux := http.NewServeMux()
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":%q,"token_endpoint":%q,
			"authorization_response_iss_parameter_supported":%v,"token_endpoint_auth_methods_supported":%s}`,
			s.URL, s.URL+"/keys", s.URL+"/page", s.URL+"/token", s.names, s.methods)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(jose.JSONWebKey{Key: key.Public(), KeyID: "k", Use: "sig", Algorithm: "ES256"})
		fmt.Fprintf(w, `{"keys":[%s]}`, b)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.got, s.basic = append(s.got, r.PostForm), append(s.basic, r.Header.Get("Authorization"))
		code := r.PostForm.Get("code")
		asked := s.asked[code]
		if asked == nil || asked.Get("redirect_uri") != r.PostForm.Get("redirect_uri") ||
			!s.lax && asked.Get("code_challenge") != oauth2.S256ChallengeFromVerifier(r.PostForm.Get("code_verifier")) {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		if !s.reuse {
			delete(s.asked, code)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"a","token_type":"Bearer","id_token":%q}`, s.token(t, asked.Get("nonce")))
	})
	return s
}

func (s *issuer) token(t *testing.T, nonce string) string {
	c := map[string]any{"iss": s.URL, "sub": "ann", "aud": "waldo", "nonce": nonce, "groups": []string{"staff"},
		"exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(c, s.claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: "k"}}, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Error(err)
	}
	return text
}

// desk is the console's half: it records what is audited.
type desk struct {
	site.Backend
	events []site.Event
	who    []site.Who
}

func (d *desk) Audit(_ context.Context, who site.Who, e site.Event) error {
	d.events, d.who = append(d.events, e), append(d.who, who)
	return nil
}

func (d *desk) Here(context.Context) (site.Here, error) { return site.Here{Machine: "m"}, nil }

// browser is one browser at a console, and the issuer behind it.
type browser struct {
	t      *testing.T
	s      *issuer
	web    *site.Server
	d      *desk
	login  contract.ConsoleLogin
	now    time.Time
	peer   string
	jar    map[string]string
	cookie []*http.Cookie // of the last answer
	client *http.Client   // of waldo at the issuer; nil: one of its own
	detail string         // of the last problem
}

func open(t *testing.T) *browser {
	t.Helper()
	b := &browser{t: t, s: newIssuer(t), d: &desk{}, now: time.Now(), jar: map[string]string{}}
	b.login = contract.ConsoleLogin{Issuer: b.s.URL, ClientID: "waldo", Claim: "groups", Scopes: []string{"groups"},
		Viewer: []string{"staff"}, Approver: []string{"leads"}, Operator: []string{"ops"}}
	b.configure()
	return b
}

// configure begins a console with the browser's configuration.
func (b *browser) configure() {
	var made *Issuer
	b.web = site.New(site.Options{Backend: b.d, Hosts: []string{"localhost"}, Now: func() time.Time { return b.now },
		Peer: func(*http.Request) string { return b.peer },
		OIDC: func() site.Issuer {
			if b.login.Issuer == "" {
				return nil
			}
			if made == nil || made.o.Login.ClientID != b.login.ClientID || len(made.o.Login.Viewer) != len(b.login.Viewer) {
				made = New(Options{Login: b.login, Client: b.client, Now: func() time.Time { return b.now },
					Secret: func(r secret.Ref) (secret.Value, error) { return secret.NewValue("hush " + string(r)), nil }})
			}
			return made
		}})
}

func (b *browser) get(path string) (*httptest.ResponseRecorder, string) {
	r := httptest.NewRequest("GET", "http://localhost:7677"+path, nil)
	for name, value := range b.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.web.ServeHTTP(w, r)
	b.cookie = w.Result().Cookies()
	for _, c := range b.cookie {
		b.jar[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
	var p site.Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	b.detail = p.Detail
	return w, p.Code
}

// begin opens the issuer's page and returns the parameters of its answer.
func (b *browser) begin() url.Values {
	b.t.Helper()
	w, _ := b.get("/login/oidc")
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusSeeOther || !strings.HasPrefix(to.String(), b.s.URL+"/page?") {
		b.t.Fatalf("%d %q %v %s", w.Code, to, err, w.Body)
	}
	code := rand.Text()
	b.s.asked[code] = to.Query()
	return url.Values{"state": {to.Query().Get("state")}, "code": {code}, "iss": {b.s.URL}}
}

func (b *browser) back(answer url.Values) (int, string) {
	w, code := b.get("/login/oidc/callback?" + answer.Encode())
	return w.Code, code
}

func (b *browser) role() string {
	w, code := b.get("/api/v1/me")
	var me struct{ Role, Principal string }
	if json.Unmarshal(w.Body.Bytes(), &me) != nil || me.Role == "" {
		return code
	}
	return me.Role + " " + me.Principal
}

// TestLogin: the claim of the ID token gives the role, until the token ends.
func TestLogin(t *testing.T) {
	b := open(t)
	if w, _ := b.get("/login"); !strings.Contains(w.Body.String(), `href="/login/oidc"`) {
		t.Errorf("the page of the login lacks the link:\n%s", w.Body)
	}
	answer := b.begin()
	asked := b.s.asked[answer.Get("code")]
	for name, want := range map[string]string{"response_type": "code", "client_id": "waldo", "scope": "openid groups",
		"redirect_uri": "http://localhost:7677/login/oidc/callback", "code_challenge_method": "S256"} {
		if asked.Get(name) != want {
			t.Errorf("%s is %q", name, asked.Get(name))
		}
	}
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if len(asked.Get(name)) != 43 {
			t.Errorf("%s is %q", name, asked.Get(name))
		}
	}
	if c := b.cookie[0]; c.Name != "__Host-waldo-oidc" || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" ||
		c.SameSite != http.SameSiteLaxMode || c.MaxAge != 600 {
		t.Errorf("cookie %v", c)
	}
	w, code := b.get("/login/oidc/callback?" + answer.Encode())
	if w.Code != 200 || w.Header().Get("Refresh") != "0; url=/" || b.jar["__Host-waldo-oidc"] != "" {
		t.Fatalf("%d %s %v", w.Code, code, w.Header())
	}
	if got := b.role(); got != "viewer oidc:ann" {
		t.Errorf("logged in as %q", got)
	}
	if len(b.d.events) != 1 || b.d.events[0].Action != "login.oidc" || b.d.events[0].Result != "done" ||
		b.d.events[0].Target != "viewer" || b.d.who[0].Principal != "oidc:ann" {
		t.Errorf("the log: %+v", b.d.events)
	}
	if b.s.got[0].Get("client_id") != "waldo" || b.s.got[0].Has("client_secret") || b.s.basic[0] != "" {
		t.Errorf("a public client sent %v %q", b.s.got[0], b.s.basic[0])
	}
	b.now = b.now.Add(59 * time.Minute)
	if got := b.role(); got != "viewer oidc:ann" {
		t.Errorf("before the end of the token: %q", got)
	}
	b.now = b.now.Add(time.Minute)
	if got := b.role(); got != "login" {
		t.Errorf("after the end of the token: %q", got)
	}
}

// TestRefused: each answer that is not the whole, fresh answer of the issuer to this browser is refused, with a record.
func TestRefused(t *testing.T) {
	claim := func(name string, v any) func(*browser, url.Values) {
		return func(b *browser, _ url.Values) { b.s.claims[name] = v }
	}
	set := func(name, v string) func(*browser, url.Values) {
		return func(_ *browser, a url.Values) { a.Set(name, v) }
	}
	for _, row := range []struct {
		why    string
		change func(b *browser, answer url.Values)
		want   string
	}{
		{"control", nil, ""},
		{"a forged state", set("state", strings.Repeat("x", 43)), "login.oidc_state"},
		{"no state", func(_ *browser, a url.Values) { a.Del("state") }, "login.oidc_state"},
		{"a browser without the cookie", func(b *browser, _ url.Values) { clear(b.jar) }, "login.oidc_state"},
		{"a cookie of another login", func(b *browser, _ url.Values) { b.begin() }, "login.oidc_state"},
		{"a cookie that an attacker chose", func(b *browser, _ url.Values) { b.jar["__Host-waldo-oidc"] = "1.x" },
			"login.oidc_state"},
		{"another user of the machine", func(b *browser, _ url.Values) { b.peer = "1001" }, "login.oidc_state"},
		{"just in time", func(b *browser, _ url.Values) { b.now = b.now.Add(flowLife - 2*time.Second) }, ""},
		{"too late", func(b *browser, _ url.Values) { b.now = b.now.Add(flowLife + 2*time.Second) }, "login.oidc_state"},
		{"another process", func(b *browser, _ url.Values) { b.configure() }, "login.oidc_state"},
		{"a person who refused", set("error", "access_denied"), "login.oidc_denied"},
		{"no code", func(_ *browser, a url.Values) { a.Del("code") }, "login.oidc_denied"},
		{"a code of nothing", set("code", "x"), "login.oidc_code"},
		{"a code of another login, without its verifier", func(b *browser, a url.Values) {
			stolen := a.Get("code")
			clear(a)
			maps.Copy(a, b.begin())
			a.Set("code", stolen)
		}, "login.oidc_code"},
		{"an answer of another issuer", set("iss", "https://evil.example.com"), "login.oidc_issuer"},
		{"an answer without its issuer", func(_ *browser, a url.Values) { a.Del("iss") }, ""},
		{"a token of another issuer", claim("iss", "https://evil.example.com"), "login.oidc_token"},
		{"a token for another client", claim("aud", "other"), "login.oidc_token"},
		{"a token for several clients", claim("aud", []string{"waldo", "other"}), "login.oidc_token"},
		{"a token for several clients, for waldo", func(b *browser, _ url.Values) {
			b.s.claims["aud"], b.s.claims["azp"] = []string{"waldo", "other"}, "waldo"
		}, ""},
		{"a token that another client asked for", claim("azp", "other"), "login.oidc_token"},
		{"a token of another login", claim("nonce", strings.Repeat("x", 43)), "login.oidc_token"},
		{"a token without a nonce", claim("nonce", nil), "login.oidc_token"},
		{"a token that has ended", claim("exp", time.Now().Add(-2*time.Minute).Unix()), "login.oidc_token"},
		{"a token without an end", claim("exp", nil), "login.oidc_token"},
		{"a token without a person", claim("sub", ""), "login.oidc_token"},
		{"a token that another key signed", func(b *browser, _ url.Values) {
			b.s.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		}, "login.oidc_token"},
		{"a person without a role", claim("groups", []string{"guests"}), "role"},
		{"a claim that is missing", claim("groups", nil), "role"},
		{"a claim of another type", claim("groups", map[string]any{"staff": true}), "role"},
		{"a claim that begins as the role", claim("groups", "staff2"), "role"},
	} {
		b := open(t)
		answer := b.begin()
		if row.change != nil {
			row.change(b, answer)
		}
		status, code := b.back(answer)
		if code != row.want || (status == 200) != (row.want == "") || status != 200 && status != 403 {
			t.Errorf("%s: %d %q", row.why, status, code)
		}
		if in := b.role(); (in == "login") != (row.want != "") {
			t.Errorf("%s: afterwards %q", row.why, in)
		}
		e := b.d.events
		if len(e) != 1 || e[0].Action != "login.oidc" || (e[0].Result == "done") != (row.want == "") {
			t.Errorf("%s: the log has %+v", row.why, e)
		}
	}
}

// TestReplay: an answer is good once, also for an issuer that takes its codes twice. A stolen code fails by its nonce,
// also for an issuer that compares no verifier.
func TestReplay(t *testing.T) {
	b := open(t)
	b.s.reuse, b.s.lax = true, true
	answer := b.begin()
	cookie := b.jar["__Host-waldo-oidc"]
	if status, code := b.back(answer); status != 200 {
		t.Fatalf("control: %d %s", status, code)
	}
	clear(b.jar)
	b.jar["__Host-waldo-oidc"] = cookie
	if status, code := b.back(answer); status != 403 || code != "login.oidc_state" {
		t.Errorf("a replay: %d %s", status, code)
	}
	mine := b.begin()
	mine.Set("code", answer.Get("code"))
	if status, code := b.back(mine); status != 403 || code != "login.oidc_token" {
		t.Errorf("a stolen code: %d %s", status, code)
	}
}

// TestMixUp: an issuer that promises its name in answers must keep the promise (RFC 9207).
func TestMixUp(t *testing.T) {
	b := open(t)
	b.s.names = true
	if status, code := b.back(b.begin()); status != 200 {
		t.Fatalf("control: %d %s", status, code)
	}
	answer := b.begin()
	answer.Del("iss")
	if status, code := b.back(answer); status != 403 || code != "login.oidc_issuer" || len(b.s.got) != 1 {
		t.Errorf("without iss: %d %s, %d requests of tokens", status, code, len(b.s.got))
	}
}

// TestRolesFollow: the strongest value decides, and a configuration without the value or the issuer ends the login.
func TestRolesFollow(t *testing.T) {
	b := open(t)
	for want, groups := range map[string]any{"approver": "leads", "operator": []string{"staff", "ops", "leads"}} {
		b.s.claims["groups"] = groups
		if status, code := b.back(b.begin()); status != 200 || b.role() != want+" oidc:ann" {
			t.Errorf("%s: %d %s %s", want, status, code, b.role())
		}
	}
	delete(b.s.claims, "groups")
	for why, change := range map[string]func(l *contract.ConsoleLogin){
		"the value has no role": func(l *contract.ConsoleLogin) { l.Viewer = nil },
		"another client":        func(l *contract.ConsoleLogin) { l.ClientID = "other" },
		"no login by an issuer": func(l *contract.ConsoleLogin) { *l = contract.ConsoleLogin{} },
	} {
		before := b.login
		b.back(b.begin())
		if got := b.role(); got != "viewer oidc:ann" {
			t.Fatalf("%s: control: %s", why, got)
		}
		change(&b.login)
		if got := b.role(); got != "login" {
			t.Errorf("%s: %s", why, got)
		}
		b.login = before
		if got := b.role(); got != "login" {
			t.Errorf("%s: the login is back: %s", why, got)
		}
	}
	b.login = contract.ConsoleLogin{}
	for _, path := range []string{"/login/oidc", "/login/oidc/callback"} {
		if w, code := b.get(path); w.Code != 404 || code != "not_found" {
			t.Errorf("%s without an issuer: %d %s", path, w.Code, code)
		}
	}
	if w, _ := b.get("/login"); strings.Contains(w.Body.String(), "/login/oidc") {
		t.Error("the page of the login has a link that leads nowhere")
	}
}

// TestFlood: failed logins are bounded, and the issuer is not asked again and again.
func TestFlood(t *testing.T) {
	b := open(t)
	for range 20 {
		b.back(url.Values{})
	}
	answer := b.begin()
	if status, code := b.back(answer); status != 429 || code != "too_many" || len(b.s.got) != 0 || len(b.d.events) != 20 {
		t.Errorf("%d %s, %d records", status, code, len(b.d.events))
	}
	b.now = b.now.Add(time.Minute)
	if status, code := b.back(answer); status != 200 {
		t.Errorf("a minute later: %d %s", status, code)
	}
}

// TestSecret: the client's secret goes to the token endpoint alone, as the issuer's metadata says.
func TestSecret(t *testing.T) {
	for methods, header := range map[string]bool{`["client_secret_post"]`: false, `["client_secret_basic"]`: true, `[]`: true} {
		b := open(t)
		b.s.methods, b.login.Secret = methods, "env:S"
		b.configure()
		answer := b.begin()
		if status, code := b.back(answer); status != 200 {
			t.Errorf("%s: %d %s", methods, status, code)
			continue
		}
		if inBody := b.s.got[0].Get("client_secret") == "hush env:S"; inBody == header || (b.s.basic[0] != "") != header {
			t.Errorf("%s: %v %q", methods, b.s.got[0], b.s.basic[0])
		}
	}
}

// TestMetadata: metadata of another issuer, or with an address that others can read, is refused.
func TestMetadata(t *testing.T) {
	for why, metadata := range map[string]string{
		"another issuer":     `{"issuer":"https://evil.example.com","authorization_endpoint":"https://a/","token_endpoint":"https://a/"}`,
		"an open token page": `{"issuer":"ISSUER","authorization_endpoint":"https://a/","token_endpoint":"http://a.example.com/"}`,
		"an open login page": `{"issuer":"ISSUER","authorization_endpoint":"http://a.example.com/","token_endpoint":"https://a/"}`,
		"no token page":      `{"issuer":"ISSUER","authorization_endpoint":"https://a/"}`,
		"no metadata":        `x`,
		"":                   `{"issuer":"ISSUER","authorization_endpoint":"https://a/","token_endpoint":"https://a/"}`,
	} {
		var asked int
		var s *httptest.Server
		s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			fmt.Fprint(w, strings.ReplaceAll(metadata, "ISSUER", s.URL))
		}))
		defer s.Close()
		i := New(Options{Login: contract.ConsoleLogin{Issuer: s.URL, ClientID: "waldo"}})
		for range 5 {
			_, err := i.Page(t.Context(), site.Flow{State: "s", Nonce: "n", Verifier: "v"})
			var p *site.Problem
			if bad := errors.As(err, &p) && p.Code == "login.oidc_metadata"; bad != (why != "") {
				t.Errorf("%q: %v", why, err)
			}
		}
		if asked > 2 {
			t.Errorf("%q: asked %d times", why, asked)
		}
	}
}
