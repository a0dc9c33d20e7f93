package operator

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"waldo/internal/feature/console/site"
	"waldo/internal/feature/console/site/oidclogin"
	"waldo/internal/model/contract"
	values "waldo/internal/model/secret"
	"waldo/internal/testing/issuertest"
)

// TestChromiumIssuer: people log in to the console at oidc-provider, another site, in a real browser. The cookies of both
// sides, the redirects and the console's content policy let them through; a person without a role, and an answer that
// this browser did not ask for, stay out.
func TestChromiumIssuer(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	var issuer site.Issuer
	d.web = site.New(site.Options{Backend: d.op, Hosts: []string{"localhost"}, OIDC: func() site.Issuer { return issuer }})
	_, at := d.listen()
	s := issuertest.Start(t, issuertest.Login, at+"/login/oidc/callback")
	issuer = oidclogin.New(oidclogin.Options{
		Login: contract.ConsoleLogin{Issuer: s.URL, ClientID: "waldo", Secret: "env:S", Claim: "groups",
			Scopes: []string{"groups"}, Viewer: []string{"staff"}, Approver: []string{"leads"}},
		Secret: func(values.Ref) (values.Value, error) { return values.NewValue(issuertest.Secret), nil },
	})
	b.do("Network.enable", nil, nil)
	b.do("Network.setBlockedURLs", map[string]any{"urls": []string{"https://*"}}, nil) // nothing beyond this machine
	logIn := func(name string) {
		t.Helper()
		b.do("Network.clearBrowserCookies", nil, nil)
		b.visit(at + "/login")
		b.eval("document.querySelector('a[href=\"/login/oidc\"]').click()")
		b.until("location.origin === '" + s.URL + "' && document.querySelector('[name=login]')")
		b.eval("document.querySelector('[name=login]').value = '" + name + "'; document.querySelector('[name=password]').value = 'x';" +
			"document.querySelector('button[type=submit]').click()")
		b.until("document.querySelector('[name=prompt][value=consent]')")
		b.eval("document.querySelector('button[type=submit]').click()")
		b.until("location.origin === '" + at + "' && document.readyState === 'complete'")
	}
	me := "fetch('/api/v1/me').then((r) => r.json()).then((v) => (v.role || v.code) + ' ' + (v.principal || ''))"

	b.visit(at + "/login")
	b.inspect("login-issuer")
	logIn("bea")
	b.until("location.pathname === '/'")
	if got := b.eval(me); got != "approver oidc:bea" {
		t.Errorf("logged in as %q", got)
	}
	if got := b.eval("document.cookie"); got != "" {
		t.Errorf("a script reads the cookies %q", got)
	}

	logIn("bob")
	b.until("document.body.innerText.includes('gives oidc:bob no role')")
	if got := b.eval(me); got != "login " {
		t.Errorf("without a role: %q", got)
	}
	b.inspect("login-no-role")

	// An answer for another's browser: somebody logs in as ann here, and sends the link to this browser.
	resp, err := http.DefaultTransport.RoundTrip(httptest.NewRequest("GET", at+"/login/oidc", nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	back, err := s.Consent(resp.Header.Get("Location"), "ann")
	if err != nil {
		t.Fatal(err)
	}
	b.visit(back.String())
	b.until("document.body.innerText.includes('no login that this browser began')")
	if got := b.eval(me); got != "login " {
		t.Errorf("another's answer: %q", got)
	}

	var records struct{ Items []site.Record }
	if status, code := d.login(site.RoleViewer).do("GET", "/api/v1/audit?kind=console&text=login.oidc", nil, &records); status != 200 {
		t.Fatal(status, code)
	}
	var ends []string
	for _, r := range records.Items {
		for _, end := range []string{"done", "refused"} {
			if strings.Contains(string(r.Body), `"result":"`+end) {
				ends = append(ends, end)
			}
		}
	}
	slices.Sort(ends)
	if strings.Join(ends, " ") != "done refused refused" {
		t.Errorf("the log has %q: %+v", ends, records.Items)
	}
	b.mu.Lock()
	b.faults = slices.DeleteFunc(b.faults, func(f string) bool { // the pages that refuse, and fonts of the issuer's pages
		return strings.Contains(f, "status of 40") || strings.Contains(f, `"url":"https://`)
	})
	b.mu.Unlock()
	b.quiet()
}
