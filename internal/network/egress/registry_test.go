package egress

import (
	"testing"

	"waldo/internal/network/egress/packages"
)

// At a registry's host only requests that its rules and pins allow pass; other hosts are unchanged.
func TestRegistry(t *testing.T) {
	rules, err := ParseRules([]string{"npm.example.com", "*.example.com", "GET,HEAD npm.example.com:443/team/*"})
	if err != nil {
		t.Fatal(err)
	}
	open := &Policy{Rules: append([]Rule(nil), rules...)}
	open.Rules[2].Registry = &packages.Source{Manager: packages.NPM, Base: "/team/"}
	pinned := &Policy{Rules: append([]Rule(nil), rules...)}
	pinned.Rules[2].Registry = &packages.Source{
		Manager: packages.NPM, Base: "/team/", Pins: packages.Pins{"a": {"1.0.0"}, "@s/a": {"1.0.0"}},
	}
	plain := &Policy{Rules: rules} // the control: no registry
	for _, row := range []struct {
		why, method, url            string
		plainly, openly, withPinned string // codes
	}{
		{"a pinned file", "GET", "https://npm.example.com/team/a/-/a-1.0.0.tgz", "", "", ""},
		{"another version", "GET", "https://npm.example.com/team/a/-/a-1.0.1.tgz", "", "", "egress.packages.pin"},
		{"the index of a name with a scope", "GET", "https://npm.example.com/team/@s%2fa", "", "", ""},
		{"of a scope that is not pinned", "GET", "https://npm.example.com/team/@x%2fa", "", "", "egress.packages.pin"},
		{"a way up after a scope", "GET", "https://npm.example.com/team/@s%2f..", "", "egress.request", "egress.request"},
		{"two slashes that are hidden", "GET", "https://npm.example.com/team/@s%2fa%2fb", "",
			"egress.request", "egress.request"},
		{"another path of the host", "GET", "https://npm.example.com/other", "", "egress.request", "egress.request"},
		{"another method", "PUT", "https://npm.example.com/team/a", "", "egress.request", "egress.request"},
		{"without TLS", "GET", "http://npm.example.com/team/a/-/a-1.0.1.tgz", "", "egress.port", "egress.port"},
		{"another host", "PUT", "http://api.example.com/team/a", "", "", ""},
	} {
		for name, is := range map[string]struct {
			p    *Policy
			want string
		}{"no registry": {plain, row.plainly}, "no pins": {open, row.openly}, "pins": {pinned, row.withPinned}} {
			to, why := ParseURL(row.url)
			if why == nil {
				why = is.p.request(row.method, to)
			}
			if got := code(why); got != is.want {
				t.Errorf("%s, %s: %q, want %q", row.why, name, got, is.want)
			}
		}
	}
}

func code(r *Refusal) string {
	if r == nil {
		return ""
	}
	return r.Code
}
