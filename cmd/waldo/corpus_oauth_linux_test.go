package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rows of http-transport about authorization servers have two halves. waldo serves no such paths; and as a client
// of another's authorization server it cannot be made to do what the row says.

// noIssuer wants 404 at the paths of an authorization server.
func noIssuer(d *doorway) {
	d.t.Helper()
	if got, _, body := d.ask("POST", "/mcp", corpusHello); got != 200 {
		d.t.Fatalf("control: %d %s", got, body)
	}
	for _, path := range []string{"/register", "/authorize", "/token", "/consent", "/oauth/authorize", "/oauth/token",
		"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
		for _, method := range []string{"GET", "POST"} {
			if got, h, _ := d.ask(method, path, "{}"); got != 404 || h.Get("Location") != "" || h.Get("Set-Cookie") != "" {
				d.t.Errorf("%s %s: %d %v", method, path, got, h)
			}
		}
	}
}

// loggedIn runs a login at an issuer whose authorization page has the parameters of more in its address. It returns
// what the page and the issuer were given.
func loggedIn(t *testing.T, more string) (page url.Values, seen *issued) {
	t.Helper()
	seen = &issued{}
	dir := loginAs(t, "", func(at string, doc map[string]any) {
		doc["authorization_endpoint"] = at + "/authorize" + more
	}, leadBack, seen)
	b, err := os.ReadFile(filepath.Join(dir, "page"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return u.Query(), seen
}

var ownCallback = regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+/callback$`)

// ownRedirect has an issuer put another redirect into the page's address. The page, the registration and the request
// of the token name waldo's own alone.
func ownRedirect(evil string) func(*doorway, corpusCase) {
	return func(d *doorway, _ corpusCase) {
		noIssuer(d)
		page, seen := loggedIn(d.t, "?keep=1&redirect_uri="+url.QueryEscape(evil)+"&redirect_uri="+url.QueryEscape(evil))
		if page.Get("keep") != "1" {
			d.t.Fatalf("control: %v", page)
		}
		own := page.Get("redirect_uri")
		if !ownCallback.MatchString(own) || len(page["redirect_uri"]) != 1 || seen.tokens[0].Get("redirect_uri") != own ||
			fmt.Sprint(seen.clients[0]["redirect_uris"]) != "["+own+"]" {
			d.t.Errorf("%v %v %v", page, seen.clients, seen.tokens)
		}
	}
}

// ownChallenge has an issuer empty and weaken the challenge in the page's address; then one that checks none.
func ownChallenge(d *doorway, _ corpusCase) {
	noIssuer(d)
	page, seen := loggedIn(d.t, "?code_challenge=&code_challenge_method=plain")
	sum := sha256.Sum256([]byte(seen.tokens[0].Get("code_verifier")))
	if len(page["code_challenge"]) != 1 || page.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		!slices.Equal(page["code_challenge_method"], []string{"S256"}) {
		d.t.Errorf("%v %v", page, seen.tokens)
	}
	loginAs(d.t, "PKCE", func(_ string, doc map[string]any) { delete(doc, "code_challenge_methods_supported") },
		leadBack, &issued{})
}

// ownConsent has two servers of one issuer. The consent to the first does not hold for the second: waldo asks again.
func ownConsent(d *doorway, _ corpusCase) {
	noIssuer(d)
	seen := &issued{}
	at := issuing(d.t, func(string, map[string]any) {}, seen)
	var bearers []string // that the second server was sent
	var other *httptest.Server
	other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, other.URL+"/mcp", at)
			return
		}
		if h := r.Header.Get("Authorization"); h != "" {
			bearers = append(bearers, h)
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	dir := d.t.TempDir()
	prog, config := filepath.Join(dir, "browser.py"), filepath.Join(dir, "waldo.yaml")
	for name, text := range map[string]string{
		prog: "import sys, urllib.request, urllib.parse\npage = sys.argv[1]\nopen('" + dir +
			"/pages', 'a').write(page + '\\n')\n" + leadBack,
		config: fmt.Sprintf("version: 1\nservers:\n  a: {url: %q, auth: {oauth: {}}}\n  b: {url: %q, auth: {oauth: {}}}\n"+
			"capabilities: {}\n",
			at+"/mcp", other.URL+"/mcp"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	waldo := func(args ...string) said {
		return typing(d.t, "", append([]string{"--config", config, "--state", filepath.Join(dir, "state")}, args...)...)
	}
	if got := waldo("login", "a", "--browser", "python3 "+prog); !strings.Contains(got.out, "logged in") {
		d.t.Fatalf("control: %+v", got)
	}
	if got := waldo("lock", "--show", "b"); !strings.Contains(got.err, "waldo login b") || len(bearers) > 0 {
		d.t.Errorf("%+v %q", got, bearers)
	}
	if got := waldo("login", "b", "--browser", "python3 "+prog); !strings.Contains(got.out, "logged in") {
		d.t.Errorf("%+v", got)
	}
	b, err := os.ReadFile(filepath.Join(dir, "pages"))
	if err != nil || strings.Count(string(b), "\n") != 2 || len(seen.clients) != 2 {
		d.t.Errorf("%s %v: %v", b, err, seen.clients)
	}
	for i, want := range []string{at + "/mcp", other.URL + "/mcp"} {
		if got := seen.tokens[i]["resource"]; !slices.Equal(got, []string{want}) {
			d.t.Errorf("token %d is for %q, wanted %s", i, got, want)
		}
	}
}

// oneClient logs in three times: waldo registers itself once.
func oneClient(d *doorway, _ corpusCase) {
	noIssuer(d)
	seen := &issued{}
	dir := loginAs(d.t, "", func(string, map[string]any) {}, leadBack, seen)
	for range 2 {
		got := typing(d.t, "", "--config", filepath.Join(dir, "waldo.yaml"), "--state", filepath.Join(dir, "state"),
			"login", "crm", "--browser", "python3 "+filepath.Join(dir, "browser.py"))
		if !strings.Contains(got.out, "logged in") {
			d.t.Fatalf("control: %+v", got)
		}
	}
	if len(seen.tokens) != 3 || len(seen.clients) != 1 {
		d.t.Errorf("%d tokens, %d registrations", len(seen.tokens), len(seen.clients))
	}
}

// noLogo logs in at an issuer whose answers name a logo. waldo fetches none, and names none of its own.
func noLogo(d *doorway, _ corpusCase) {
	noIssuer(d)
	seen := &issued{}
	loginAs(d.t, "", func(at string, doc map[string]any) {
		doc["logo_uri"], doc["op_policy_uri"], doc["op_tos_uri"], doc["jwks_uri"] = at+"/logo", at+
			"/policy", at+"/tos", at+"/jwks"
	}, leadBack, seen)
	for _, p := range seen.paths {
		if !slices.Contains([]string{"/mcp", "/register", "/token", "/.well-known/oauth-authorization-server"}, p) &&
			!strings.HasPrefix(p, "/.well-known/oauth-protected-resource") {
			d.t.Errorf("waldo asked for %s", p)
		}
	}
	if len(seen.clients) != 1 || seen.clients[0]["client_name"] == nil || seen.clients[0]["logo_uri"] != nil {
		d.t.Errorf("%v", seen.clients)
	}
}
