package egress

import (
	"strings"
	"testing"
)

// TestParseURLRefuses: each form that parsers could read differently is refused for its own reason.
func TestParseURLRefuses(t *testing.T) {
	for _, row := range []struct{ url, code string }{
		{"http://a.example.com/" + strings.Repeat("x", maxURL-len("http://a.example.com/")), ""},
		{"http://a.example.com/" + strings.Repeat("x", maxURL-len("http://a.example.com/")+1), "egress.url.long"},
		{"http://a.example.com/  ", ""}, // blanks at the end are cut off
		{"http://a.example.com/a b", "egress.url.control"},
		{"http://a.example.com/a\tb", "egress.url.control"},
		{"http://a.example.com/a\x7fb", "egress.url.control"},
		{"http://a.example.com/a\nb", "egress.url.control"},
		{"ftp://a.example.com/", "egress.url.scheme"},
		{"a.example.com", "egress.url.scheme"},
		{"http://u@a.example.com/", "egress.url.host"},
		{"http://a.example.com:80/", ""},
		{"http://a.example.com:080/", "egress.url.port"},
		{"http://a.example.com:+80/", "egress.url.port"},
		{"http://a.example.com:0/", "egress.url.port"},
		{"http://a.example.com:65536/", "egress.url.port"},
		{"http://[::1]/", ""},
		{"http://[1.2.3.4]/", "egress.url.host"},
		{"http://[fe80::1%25eth0]/", "egress.url.host"},
		{"http://[1::2:80/", "egress.url.host"},
		{"http://a.example.com/#x", "egress.url.fragment"},
	} {
		_, why := ParseURL(row.url)
		if (why == nil) != (row.code == "") || why != nil && why.Code != row.code {
			t.Errorf("%.60q: %v, wanted %q", row.url, why, row.code)
		}
	}
}
