package egress

import (
	"net/http"
	"strings"
	"testing"

	"waldo/internal/model/facts"
)

// TestOff: what a profile switches off is refused like all else, by its path at a host that is allowed and by its name,
// and is no denial in the facts. The control is a path and a host that nothing names.
func TestOff(t *testing.T) {
	p := policyOf(t, "POST api.example.com/v1/*")
	off, err := ParseRules([]string{"api.example.com/api/*", "telemetry.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	p.Off = off
	for _, row := range []struct{ method, host, path, code string }{
		{"POST", "api.example.com", "/v1/messages", ""},
		{"POST", "api.example.com", "/api/event", "egress.off"},
		{"POST", "api.example.com", "/api/../v1x", "egress.request"}, // a path of two readings is in no list
		{"POST", "api.example.com", "/other", "egress.request"},
		{"GET", "telemetry.example.com", "/", "egress.off"},
		{"GET", "evil.example.com", "/", "egress.host"},
	} {
		code := ""
		if why := p.request(row.method, Target{Scheme: "https", Host: row.host, Port: 443, Path: row.path}); why != nil {
			code = why.Code
		}
		if code != row.code {
			t.Errorf("%s %s%s: %q, want %q", row.method, row.host, row.path, code, row.code)
		}
	}
	s := &Server{}
	s.attempts.refused("telemetry.example.com", 443, errOff)
	s.attempts.refused("evil.example.com", 443, refuse("host", "no rule"))
	f := facts.New()
	s.Report(&f)
	if len(f.Denials) != 1 || f.Denials[0].What != "evil.example.com:443" || len(f.Network.Denied) != 1 ||
		len(f.Network.Attempts) != 2 || f.Network.Attempts[0].Allowed {
		t.Errorf("%+v", f)
	}
}

// TestQuoted: a model's own API may be told a placeholder in a body, where the credential says so: nowhere else, and in
// no header. The control is the same credential without the word.
func TestQuoted(t *testing.T) {
	for _, row := range []struct {
		why, url string
		quoted   bool
		header   string
		passes   bool
	}{
		{"the body", "https://api.example.com/repos/x", true, "", true},
		{"the body, not quoted", "https://api.example.com/repos/x", false, "", false},
		{"another path", "https://api.example.com/user", true, "", false},
		{"another header", "https://api.example.com/repos/x", true, "X-Other", false},
		{"another host", "http://a.trusted.example/", true, "", false},
	} {
		c := brokered(Bearer, "")
		c.Quoted = row.quoted
		g := credentialRig(t, c)
		h := http.Header{}
		if row.header != "" {
			h.Set(row.header, c.Placeholder)
		}
		resp, got := g.ask(t, false, "POST", row.url, h, "the agent printed "+c.Placeholder)
		if refused := strings.Contains(got, "egress.secret.placeholder") && resp.StatusCode == 403; refused == row.passes {
			t.Errorf("%s: %d %q", row.why, resp.StatusCode, got)
		}
	}
}
