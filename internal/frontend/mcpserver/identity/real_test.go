package identity

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"waldo/internal/testing/issuertest"
)

// TestRealIssuer: access tokens of oidc-provider enter for their own resource and scope, in their time, while the key
// that signed them is the issuer's.
func TestRealIssuer(t *testing.T) {
	const here = "https://waldo.example.com/mcp"
	s := issuertest.Start(t, issuertest.Login, "")
	token := func(form url.Values) string {
		t.Helper()
		form.Set("grant_type", "client_credentials")
		r, err := http.NewRequest("POST", s.URL+"/token", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("robot", url.QueryEscape(issuertest.Secret))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got struct {
			Token string `json:"access_token"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
			t.Fatalf("%d %v", resp.StatusCode, err)
		}
		return got.Token
	}
	now := time.Now()
	o := &Options{URL: here, OIDC: &OIDC{Issuer: s.URL, Audience: here, Scopes: []string{"mcp"},
		Now: func() time.Time { return now }}}
	good := token(url.Values{"resource": {here}, "scope": {"mcp"}})
	enter := func(why, token string, after time.Duration, status int, challenge string) {
		t.Helper()
		now = time.Now().Add(after)
		who, refusal := o.Identify(request(t, "Bearer "+token))
		if status == 0 && (who != "oidc:robot" || refusal != nil) {
			t.Errorf("%s: %q %+v", why, who, refusal)
		}
		if status != 0 && (refusal == nil || who != "" || refusal.Status != status || !strings.Contains(refusal.Challenge, challenge)) {
			t.Errorf("%s: %q %+v", why, who, refusal)
		}
	}
	enter("control", good, 0, 0, "")
	enter("for another resource", token(url.Values{"resource": {here + "/other"}, "scope": {"mcp"}}), 0, 401, "invalid_token")
	enter("for no resource, and so opaque", token(url.Values{"scope": {"mcp"}}), 0, 401, "invalid_token")
	enter("with another scope", token(url.Values{"resource": {here}, "scope": {"other"}}), 0, 403, `error="insufficient_scope"`)
	enter("with a changed signature", good[:len(good)-10]+strings.Repeat("A", 10), 0, 401, "invalid_token")
	enter("shortly before its end", good, 10*time.Minute-time.Second, 0, "")
	enter("after its end", good, 10*time.Minute+leeway+time.Second, 401, "invalid_token")

	s.Rotate()
	now = time.Now()
	old, next := good, token(url.Values{"resource": {here}, "scope": {"mcp"}})
	o.OIDC.keys.Keys, o.OIDC.tried = nil, time.Time{} // as a new process: no key is known
	enter("of the new key", next, 0, 0, "")
	enter("of the key that was withdrawn", old, 0, 401, "invalid_token")
}
