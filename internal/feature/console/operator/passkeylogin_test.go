package operator

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/feature/console/site"
	"waldo/internal/model/contract"
	"waldo/internal/testing/passkeytest"
)

// enter logs in with a passkey, from a page of an origin.
func (d *desk) enter(name string, key *passkeytest.Authenticator, origin string) (b *browser, status int, code string) {
	b = &browser{d: d}
	var c ceremony
	if status, code = b.do("POST", "/api/v1/login", map[string]string{"name": name}, &c); status != 200 {
		return b, status, code
	}
	code = b.finish(c, key.Get(c.Options.Challenge), origin, &status)
	return b, status, code
}

// finish hands in the assertion of a login, and takes the cookie.
func (b *browser) finish(c ceremony, assertion []byte, origin string, status *int) (code string) {
	body, _ := json.Marshal(map[string]any{"assertion": json.RawMessage(assertion)})
	r := httptest.NewRequest("POST", "http://"+host+"/api/v1/login/"+c.Draft, bytes.NewReader(body))
	r.Header.Set("Origin", origin)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.d.web.ServeHTTP(w, r)
	var p site.Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	*status = w.Code
	b.cookie, _, _ = strings.Cut(w.Header().Get("Set-Cookie"), ";")
	return p.Code
}

// TestPasskeyLogin: the passkey of an approver logs in, as an approver or as gateway.console says. Nothing else does,
// and the login ends with the right of the approver.
func TestPasskeyLogin(t *testing.T) {
	cfg := &contract.Config{}
	d := openWith(t, cfg)
	annKey := d.approver("ann", nil)
	ann := signer{"ann", annKey}
	bobKey := d.approver("bob", ann)
	origin := "http://" + host
	for _, row := range []struct {
		why    string
		name   string
		change func(k passkeytest.Authenticator) *passkeytest.Authenticator
		origin string
		want   string
	}{
		{"control", "bob", nil, origin, ""},
		{"the name of another approver", "ann", nil, origin, "login.passkey"},
		{"a name that nobody has", "eve", nil, origin, "login.passkey"},
		{"an authenticator of its own", "bob", func(k passkeytest.Authenticator) *passkeytest.Authenticator {
			other := passkeytest.New(k.Origin, k.RPID)
			other.ID = k.ID
			return other
		}, origin, "login.passkey"},
		{"a user who was not verified", "bob", func(k passkeytest.Authenticator) *passkeytest.Authenticator {
			k.Unverified = true
			return &k
		}, origin, "login.passkey"},
		{"a page that another site framed", "bob", func(k passkeytest.Authenticator) *passkeytest.Authenticator {
			k.CrossOrigin = true
			return &k
		}, origin, "login.passkey"},
		{"a signature made for another site's page", "bob", func(k passkeytest.Authenticator) *passkeytest.Authenticator {
			k.Origin = "http://evil.example"
			return &k
		}, origin, "login.passkey"},
		{"a request of another site", "bob", nil, "http://evil.example", "cross_site"},
	} {
		key := bobKey
		if row.change != nil {
			key = row.change(*bobKey)
		}
		b, status, code := d.enter(row.name, key, row.origin)
		if code != row.want {
			t.Errorf("%s: %d %q", row.why, status, code)
		}
		if in, _ := b.do("GET", "/api/v1/me", nil, nil); (in == 200) != (row.want == "") {
			t.Errorf("%s: afterwards %d", row.why, in)
		}
	}

	b := &browser{d: d}
	var c, again ceremony
	b.do("POST", "/api/v1/login", map[string]string{"name": "bob"}, &c)
	b.do("POST", "/api/v1/login", map[string]string{"name": "bob"}, &again)
	once := bobKey.Get(c.Options.Challenge)
	var status int
	if code := b.finish(again, once, origin, &status); code != "login.passkey" {
		t.Errorf("the signature of another login: %d %q", status, code)
	}
	if code := b.finish(c, once, origin, &status); code != "" {
		t.Errorf("control: %d %q", status, code)
	}
	if code := (&browser{d: d}).finish(c, once, origin, &status); code != "draft.unknown" {
		t.Errorf("a replay: %d %q", status, code)
	}
	// The signature of a login does not pass as an answer.
	_, waiting := d.ask(d.decide(`{"path":"/a"}`, nil))
	in := d.login(site.RoleApprover)
	draft, status, code := in.draft(waiting, "bob", "approve")
	if status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if status, code := in.settle(waiting, "approve", draft.Draft, once); status == 200 {
		t.Errorf("the signature of a login approves: %d %q", status, code)
	}

	role := func() string {
		var me map[string]any
		b.do("GET", "/api/v1/me", nil, &me)
		r, _ := me["role"].(string)
		return r
	}
	if got := role(); got != "approver" {
		t.Errorf("role %q", got)
	}
	cfg.Gateway.Console = contract.ConsoleRoles{Operator: []string{"approver:bob"}}
	if got := role(); got != "operator" {
		t.Errorf("with gateway.console: %q", got)
	}
	cfg.Gateway.Console = contract.ConsoleRoles{}
	if err := d.k.Revoke(d.ctx, "bob", ann); err != nil {
		t.Fatal(err)
	}
	if status, code := b.do("GET", "/api/v1/approvals", nil, nil); status != 401 || code != "login" {
		t.Errorf("after bob was revoked: %d %q", status, code)
	}
	if _, _, code := d.enter("bob", bobKey, origin); code != "login.passkey" {
		t.Errorf("bob logs in again: %q", code)
	}
}

// TestLoginsOfStrangers: logins that nobody finishes take no draft of a person, and hold little memory.
func TestLoginsOfStrangers(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(site.RoleOperator)
	_, waiting := d.ask(d.decide(`{"path":"/a"}`, nil))
	c, status, code := b.draft(waiting, "ann", "approve")
	if status != 200 {
		t.Fatal(status, code)
	}
	stranger := &browser{d: d}
	for _, n := range []int{maxName, maxName + 1, 500_000} {
		status, code := stranger.do("POST", "/api/v1/login", map[string]string{"name": strings.Repeat("a", n)}, nil)
		if (status == 200) != (n <= maxName) || (code == "body") != (n > maxName) {
			t.Errorf("a name of %d bytes: %d %q", n, status, code)
		}
	}
	var p drafts // of its own
	p.by = map[string]draft{}
	persons := p.keep(draft{kind: "approve"})
	for range maxLogins + 1 {
		p.keep(draft{kind: kindLogin})
	}
	if n := len(p.by); n < 2 || n > maxLogins+1 {
		t.Errorf("%d drafts", n)
	}
	if _, err := p.take(persons, "approve", site.Who{}, ""); err != nil {
		t.Error("a person's draft:", err)
	}
	ann := p.keep(draft{kind: kindLogin, peer: "1000"})
	for i := range 2 * maxLogins {
		p.keep(draft{kind: kindLogin, peer: []string{"1004", "192.0.2.1"}[i%2]})
	}
	if _, err := p.take(ann, kindLogin, site.Who{}, ""); err != nil {
		t.Error("the login of another peer than the strangers:", err)
	}
	for range maxDrafts + 1 {
		p.keep(draft{kind: "approve"})
	}
	if n := len(p.by); n > maxLogins+maxDrafts {
		t.Errorf("%d drafts", n)
	}
	for range maxDrafts + 1 {
		stranger.do("POST", "/api/v1/login", map[string]string{"name": "ann"}, nil)
	}
	for range 30 {
		stranger.do("POST", "/api/v1/login/none", map[string]json.RawMessage{"assertion": []byte(`{}`)}, nil)
	}
	if status, code := stranger.do("POST", "/api/v1/enrolment", map[string]string{"secret": "x"}, nil); status != 429 {
		t.Errorf("control: the stranger: %d %q", status, code)
	}
	if _, status, code := d.enter("ann", key, "http://"+host); status != 200 {
		t.Errorf("a passkey's login beside them: %d %q", status, code)
	}
	secret, err := enrolment.NewInvite(d.ctx, d.store, enrolment.Invite{Name: "bob", By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if status, code := stranger.do("POST", "/api/v1/enrolment", map[string]string{"secret": secret}, nil); status != 200 {
		t.Errorf("an enrolment beside them: %d %q", status, code)
	}
	if status, code = b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge)); status != 200 {
		t.Errorf("the answer of a person, after a flood: %d %q", status, code)
	}
}
