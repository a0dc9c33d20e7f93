package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"waldo/internal/model/hostrule"
)

// FuzzParseURL: an accepted URL holds a plain name or an address, Go reads the same host and port, and parsing the
// output again changes nothing.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"http://api.example.com/", "https://a.b:8443/x?y#z", "http://[::1]:80/", "http://1.2.3.4", "http://a\\@b/",
		"http://ａ.com/", "http://0x7f.1/", "HTTP://A.B./",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, why := ParseURL(s)
		if why != nil {
			return
		}
		if _, err := netip.ParseAddr(got.Host); err != nil && hostrule.BadName(got.Host) != "" {
			t.Errorf("%q: host %q", s, got.Host)
		}
		u, err := url.Parse(strings.TrimRight(got.Scheme+"://"+got.Authority()+"/", " "))
		if err != nil || u.User != nil || hostrule.Normal(u.Hostname()) != got.Host {
			t.Errorf("%q: we read %q, Go %v %v", s, got.Host, u, err)
		}
		if again, why := ParseURL(got.String()); why != nil || again != got {
			t.Errorf("%q: %+v, then %+v %v", s, got, again, why)
		}
	})
}

// FuzzHostPattern: every match of a pattern ends in its name, and a wildcard never matches its own domain.
func FuzzHostPattern(f *testing.F) {
	f.Add("*.example.com", "a.example.com")
	f.Add("example.com", "example.com.evil.com")
	f.Add("10.0.0.0/8", "10.1.2.3")
	f.Fuzz(func(t *testing.T, pattern, host string) {
		p, err := hostrule.ParsePattern(pattern)
		if err != nil || !p.Match(host) {
			return
		}
		switch {
		case p.Prefix.IsValid():
			if a, err := netip.ParseAddr(host); err != nil || !p.Prefix.Contains(a.Unmap()) {
				t.Errorf("%q matched %q", pattern, host)
			}
		case p.Below && !strings.HasSuffix(hostrule.Normal(host), "."+p.Name), !p.Below && hostrule.Normal(host) != p.Name:
			t.Errorf("%q matched %q", pattern, host)
		}
	})
}

// FuzzServerName: a name that is read off a ClientHello is a plain one, however it is cut into
// records, and less of the same bytes never gives another.
func FuzzServerName(f *testing.F) {
	name := "api.example.com"
	f.Add(hello(&name, 0))
	f.Add(hello(&name, 1))
	f.Add(hello(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, more, why := serverName(b)
		if why != nil || more {
			return
		}
		if hostrule.BadName(name) != "" && name != "localhost" {
			t.Errorf("the name %q", name)
		}
		for i := range b {
			if less, more, why := serverName(b[:i]); why == nil && !more && less != name {
				t.Errorf("%q, and of %d bytes %q", name, i, less)
			}
		}
	})
}

// FuzzAnswer: no question gets an address for a name that no rule allows, and every answer is one
// to the question.
func FuzzAnswer(f *testing.F) {
	for _, n := range []string{"api.example.com.", "evil.example."} {
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
		_ = b.StartQuestions()
		_ = b.Question(dnsmessage.Question{
			Name: dnsmessage.MustNewName(n), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		})
		m, _ := b.Finish()
		f.Add(m)
	}
	rule, err := ParseRule("api.example.com")
	if err != nil {
		f.Fatal(err)
	}
	names := newNames(&Policy{Rules: []Rule{rule}}, 10)
	f.Fuzz(func(t *testing.T, q []byte) {
		reply, _ := names.answer(q)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || m.ID != uint16(q[0])<<8|uint16(q[1]) {
			t.Fatalf("the answer %v %v", m, err)
		}
		if len(m.Answers) > 0 && hostrule.Normal(m.Questions[0].Name.String()) != "api.example.com" {
			t.Errorf("an address for %s", m.Questions[0].Name)
		}
	})
}
