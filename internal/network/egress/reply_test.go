package egress

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
)

// TestReply: waldo answers a renewal itself, also where a wider rule lets the host be reached; another grant, method or
// path is no renewal. Nothing of it goes out, and it is no denial. The control has no such rule.
func TestReply(t *testing.T) {
	const form, json = "application/x-www-form-urlencoded", "application/json; charset=utf-8"
	const url = "https://a.trusted.example/token"
	renewal := `{"client_id":"c","grant_type":"refresh_token","refresh_token":"x"}`
	for _, row := range []struct {
		why, method, url, kind, body string
		wide, none                   bool
		err                          error
		status                       int
		want                         string
	}{
		{"JSON", "POST", url, json, renewal, false, false, nil, 200, "placeholder"},
		{"a form", "POST", url, form, "grant_type=refresh_token&refresh_token=x", false, false, nil, 200, "placeholder"},
		{"beside a wider rule", "POST", url, json, renewal, true, false, nil, 200, "placeholder"},
		{"the host is not allowed", "POST", url, json, renewal, false, true, nil, 0, ""},
		{"it goes out", "POST", url, json, renewal, true, true, nil, 0, "unknown authority"},
		{"a login", "POST", url, form, "grant_type=authorization_code&code=x", false, false, nil, 403, "egress.off"},
		{"a login, in the query", "POST", url + "?grant_type=refresh_token", form, "grant_type=authorization_code", false, false,
			nil, 403, "egress.off"},
		{"two grants", "POST", url, json, renewal[:len(renewal)-1] + `,"grant_type":"authorization_code"}`, false, false, nil, 403,
			"egress.off"},
		{"no JSON", "POST", url, json, "grant_type=refresh_token", false, false, nil, 403, "egress.off"},
		{"a long body", "POST", url, form, strings.Repeat("a", maxLooked) + "&grant_type=refresh_token", false, false, nil, 403,
			"egress.off"},
		{"another method", "GET", url, "", "", false, false, nil, 403, "egress.request"},
		{"another path", "POST", "https://a.trusted.example/tokens", json, renewal, false, false, nil, 403, "egress.request"},
		{"a header that changes the path", "POST", url, "override", renewal, false, false, nil, 403, "egress.request"},
		{"the issuer refuses", "POST", url, json, renewal, false, false, errors.New("no"), 400, "egress.secret.missing"},
	} {
		for _, h2 := range []bool{false, true} {
			lines := []string{"api.example.com"}
			if row.wide {
				lines = append(lines, "a.trusted.example")
			}
			c := brokered(Bearer, "")
			g := newRigWith(t, Limits{}, Options{Credentials: []Credential{c}}, lines...)
			r, err := ParseRule("POST a.trusted.example:443/token")
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			r.Reply = &Reply{Body: []byte(`{"access_token":"placeholder"}`), Fresh: func() (secret.Value, error) {
				asked++
				return secret.NewValue(hidden), row.err
			}}
			if p := g.policy; !row.none {
				p.Rules = append(p.Rules, r)
				if g.Server, err = NewServer(g.dialer, Options{Credentials: []Credential{c}}); err != nil {
					t.Fatal(err)
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				u, err := net.ListenPacket("udp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				g.Serve(sandbox.Egress{Names: u, Proxy: l})
				t.Cleanup(func() { _ = g.Close() })
			}
			h := http.Header{"Content-Type": {row.kind}, "Authorization": {"Bearer " + c.Placeholder}}
			if row.kind == "override" {
				h.Set("X-Original-Url", "/other")
			}
			resp, got := g.ask(t, h2, row.method, row.url, h, row.body)
			status := 0
			if resp != nil {
				status = resp.StatusCode
			}
			if status != row.status || !strings.Contains(got, row.want) || strings.Contains(got, hidden) {
				t.Errorf("%s, h2 %v: %d %q", row.why, h2, status, got)
			}
			if (status == 200 || status == 400) != (asked == 1) || !(row.wide && row.none) && len(g.went) > 0 {
				t.Errorf("%s, h2 %v: renewed %d times, went to %v", row.why, h2, asked, g.went)
			}
			f := facts.New()
			if g.Report(&f); status == 200 && (len(f.Denials) > 0 || len(f.Network.Contacted) > 0 || len(f.Network.Attempts) != 1 ||
				f.Network.Attempts[0].Why != "egress.replied" || f.Network.Attempts[0].Allowed) {
				t.Errorf("%s: %+v", row.why, f.Network)
			}
			if off := row.none && !row.wide; off != (len(f.Denials) == 1 && f.Denials[0].Errno == "egress.host") {
				t.Errorf("%s: %+v", row.why, f.Denials)
			}
		}
	}
}
