package hostrule

import (
	"net/netip"
	"strings"
	"testing"
)

// TestParse: the accepted lines, and names that no host can have.
func TestParse(t *testing.T) {
	for _, s := range []string{"api.example.com", "*.example.com", "db.example.com:5432", "GET,HEAD api.example.com/v1/*",
		"xn--bcher-kva.example", "10.0.0.0/8", "[::1]:80",
		"localhost:8080", "api.example.com/@scope/*"} {
		if _, err := Parse(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "*", "*.com", "com", "ab--c.example.com", "a.0x1", "a.123", "api.example.com:0",
		"api.example.com:65536", "api.example.com/../x",
		"api.example.com/a%2fb", "api.example.com/a b", "api.example.com/a\tb", "api.example.com/*/x", "get api.example.com",
		"a_b.example.com", "-a.example.com", "10.1.2.3/8"} {
		if l, err := Parse(s); err == nil {
			t.Errorf("%q is read as %+v", s, l)
		}
	}
	const want = `egress rule "GET https://api.example.com/": leave https:// out; a rule begins with its host,` +
		` as in api.example.com`
	if _, err := Parse("GET https://api.example.com/"); err == nil || err.Error() != want {
		t.Errorf("an address: %v", err)
	}
}

// TestWarning: a wildcard that many share is one to think about.
func TestWarning(t *testing.T) {
	none := func(netip.Addr) string { return "" }
	for s, want := range map[string]string{"*.co.uk": "public suffix", "*.github.io": "shared suffix",
		"*.s3.amazonaws.com": "shared suffix",
		"*.example.com":      "", "me.github.io": "", "localhost": "private"} {
		p, err := ParsePattern(s)
		if err != nil || p.Warning(none) != want {
			t.Errorf("%q: %q %v", s, p.Warning(none), err)
		}
	}
}

// FuzzParse states that a line means the same when its host is read again, and that its path is a plain one.
func FuzzParse(f *testing.F) {
	f.Add("GET,HEAD *.example.com:8443/v1/*")
	f.Add("[::1]:80")
	f.Add("ab--c.example.com")
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := ParsePattern(l.Host.String()); err != nil || again != l.Host {
			t.Errorf("%q: %v, then %v %v", s, l.Host, again, err)
		}
		if l.Path != "" && (l.Path[0] != '/' || strings.Contains(l.Path, "/../") || strings.ContainsAny(l.Path, " \n#?%")) {
			t.Errorf("%q: path %q", s, l.Path)
		}
	})
}
