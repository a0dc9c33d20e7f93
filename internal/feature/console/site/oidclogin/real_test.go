package oidclogin

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/testing/issuertest"
)

const redirectBack = "http://localhost:7677/login/oidc/callback"

// hooks bend one login at a real issuer. Each can be nil.
type hooks struct {
	person string                          // ann, if empty
	ask    func(*browser, url.Values)      // the request to the issuer's page
	answer func(*browser, url.Values)      // the answer that the person's browser brings back
	token  func(*http.Request, url.Values) // the request for tokens
	late   func(*browser)                  // between the issuer's token and waldo's reading of it
}

// trip is waldo's way to an issuer, which a test can bend.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// openReal opens a console that logs people in at oidc-provider.
func openReal(t *testing.T, s *issuertest.Issuer, client string, h hooks) *browser {
	t.Helper()
	b := &browser{t: t, d: &desk{}, now: time.Now(), jar: map[string]string{}}
	b.login = contract.ConsoleLogin{Issuer: s.URL, ClientID: client, Claim: "groups", Scopes: []string{"groups"},
		Viewer: []string{"staff"}, Approver: []string{"leads"}, Operator: []string{"ops"}}
	if client != "page" {
		b.login.Secret = "env:S"
	}
	b.client = &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/token" {
			return http.DefaultTransport.RoundTrip(r)
		}
		if h.token != nil {
			if err := r.ParseForm(); err != nil {
				return nil, err
			}
			h.token(r, r.PostForm)
			text := r.PostForm.Encode()
			again, err := http.NewRequestWithContext(r.Context(), "POST", r.URL.String(), strings.NewReader(text))
			if err != nil {
				return nil, err
			}
			again.Header = r.Header
			r = again
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if h.late != nil {
			h.late(b)
		}
		return resp, err
	})}
	b.configure()
	return b
}

// real logs a person in, and returns the status and code of the console's last page.
func (b *browser) real(s *issuertest.Issuer, h hooks) (int, string) {
	b.t.Helper()
	w, code := b.get("/login/oidc")
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), s.URL+"/auth?") {
		b.t.Fatalf("%d %s %q %v", w.Code, code, to, err)
	}
	asked := to.Query()
	if h.ask != nil {
		h.ask(b, asked)
	}
	to.RawQuery = asked.Encode()
	person := cmp.Or(h.person, "ann")
	if person == "nobody" {
		person = ""
	}
	back, err := s.Consent(to.String(), person)
	if err != nil || !strings.HasPrefix(back.String(), redirectBack+"?") {
		b.t.Fatalf("%v: %v", back, err)
	}
	answer := back.Query()
	if h.answer != nil {
		h.answer(b, answer)
	}
	return b.back(answer)
}

// TestRealLogins: people log in at oidc-provider, and each bent login is refused by waldo or by the issuer.
func TestRealLogins(t *testing.T) {
	s := issuertest.Start(t, issuertest.Login, redirectBack)
	set := func(name, v string) func(*browser, url.Values) {
		return func(_ *browser, a url.Values) { a.Set(name, v) }
	}
	del := func(name string) func(*browser, url.Values) { return func(_ *browser, a url.Values) { a.Del(name) } }
	later := func(d time.Duration) func(*browser) { return func(b *browser) { b.now = b.now.Add(d) } }
	const invalid, other = "the token is not valid here", "the token is of another login"
	for _, row := range []struct {
		why, client  string
		bent         hooks
		want, detail string
	}{
		{"control", "waldo", hooks{}, "", ""},
		{"control: a public client", "page", hooks{}, "", ""},
		{"a forged state", "waldo", hooks{answer: set("state", strings.Repeat("x", 43))}, "login.oidc_state", "no login that this browser began"},
		{"another browser", "waldo", hooks{answer: func(b *browser, _ url.Values) { clear(b.jar) }}, "login.oidc_state", ""},
		{"no challenge", "waldo", hooks{ask: del("code_challenge")}, "login.oidc_denied", "invalid_request"},
		{"the code of another login", "waldo", hooks{answer: func(b *browser, a url.Values) {
			w, _ := b.get("/login/oidc") // of the same browser: client and redirect address fit, the verifier does not
			stolen := a.Get("code")
			back, err := s.Consent(w.Header().Get("Location"), "ann")
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range back.Query() {
				a[name] = v
			}
			a.Set("code", stolen)
		}}, "login.oidc_code", "did not take the code"},
		{"no verifier", "page", hooks{token: func(_ *http.Request, v url.Values) { v.Del("code_verifier") }},
			"login.oidc_code", "did not take the code"},
		{"a code that was used", "page", hooks{token: func(r *http.Request, v url.Values) {
			resp, err := http.PostForm(s.URL+"/token", v)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
		}}, "login.oidc_code", "did not take the code"},
		{"a wrong secret", "waldo", hooks{token: func(r *http.Request, _ url.Values) {
			r.SetBasicAuth("waldo", "guess")
		}}, "login.oidc_code", "did not take the code"},
		{"a token with another nonce", "waldo", hooks{ask: set("nonce", "of-another-login")}, "login.oidc_token", other},
		{"a token without a nonce", "waldo", hooks{ask: del("nonce")}, "login.oidc_token", other},
		{"a token for another client", "waldo", hooks{ask: set("client_id", "other"),
			token: func(r *http.Request, _ url.Values) {
				r.SetBasicAuth("other", url.QueryEscape(issuertest.Secret))
			}}, "login.oidc_token", invalid},
		{"control: a token shortly before its end", "waldo", hooks{late: later(59 * time.Minute)}, "", ""},
		{"a token that has ended", "waldo", hooks{late: later(62 * time.Minute)}, "login.oidc_token", invalid},
		{"control: keys that are read again", "waldo", hooks{late: later(fresh + time.Minute)}, "", ""},
		{"a key that the issuer has withdrawn", "waldo", hooks{late: func(b *browser) {
			s.Rotate()
			b.now = b.now.Add(fresh + time.Minute)
		}}, "login.oidc_token", invalid},
		{"an answer without its issuer", "waldo", hooks{answer: del("iss")}, "login.oidc_issuer", "another issuer"},
		{"an answer of another issuer", "waldo", hooks{answer: set("iss", "https://evil.example.com")}, "login.oidc_issuer", "another issuer"},
		{"a person who declines", "waldo", hooks{person: "nobody"}, "login.oidc_denied", "access_denied"},
		{"a person without a role", "waldo", hooks{person: "bob"}, "role", "gives oidc:bob no role"},
		{"claims that are not in the ID token", "waldo", hooks{ask: func(*browser, url.Values) { s.Withhold(true) }}, "role",
			"gives oidc:ann no role"},
	} {
		b := openReal(t, s, row.client, row.bent)
		status, code := b.real(s, row.bent)
		s.Withhold(false)
		if code != row.want || (status == 200) != (row.want == "") || status != 200 && status != 403 ||
			!strings.Contains(b.detail, row.detail) {
			t.Errorf("%s: %d %q %s", row.why, status, code, b.detail)
		}
		if in := b.role(); row.want == "" && in != "viewer oidc:ann" || row.want != "" && in != "login" {
			t.Errorf("%s: afterwards %q", row.why, in)
		}
		if e := b.d.events; len(e) != 1 || e[0].Action != "login.oidc" || (e[0].Result == "done") != (row.want == "") {
			t.Errorf("%s: the log has %+v", row.why, e)
		}
	}
}

// TestRealRotation: a console that runs on follows the issuer's new keys; the strongest value of the claim counts.
func TestRealRotation(t *testing.T) {
	s := issuertest.Start(t, issuertest.Login, redirectBack)
	b := openReal(t, s, "waldo", hooks{})
	if status, code := b.real(s, hooks{}); status != 200 {
		t.Fatalf("control: %d %s", status, code)
	}
	s.Rotate()
	b.now = b.now.Add(pause)
	if status, code := b.real(s, hooks{person: "bea"}); status != 200 || b.role() != "approver oidc:bea" {
		t.Errorf("with the new keys: %d %s %s %s", status, code, b.detail, b.role())
	}
	b.now = b.now.Add(time.Hour + time.Second)
	if got := b.role(); got != "login" {
		t.Errorf("after the end of the token: %s", got)
	}
}
