package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/hostrule"
	"waldo/internal/testing/corpus"
)

// row is one case of the corpus, with the fields that these tests judge.
type row struct {
	ID, Expect, Class, Source string
	Input                     struct {
		Kind, URL, Pattern, Host, IP string
		Port                         uint16
		DNS                          map[string][]string
		Sequence                     map[string][][]string `json:"dns_sequence"`
		Rebind                       string                `json:"rebind_after_hop"`
		Headers                      map[string]string
		Hops                         []struct {
			Status   int
			Location *string
			Headers  map[string]string
		}
		Bytes     []byte  `json:"bytes_b64"`
		Connect   string  `json:"connect"`
		SNI       *string `json:"sni"`
		FirstByte string  `json:"first_bytes"`
		Fragment  int
	}
}

func rows(t testing.TB) []row { return corpus.Rows[row](t, "egress.jsonl") }

func policy(t testing.TB, lines ...string) *Policy {
	t.Helper()
	rules, err := ParseRules(lines)
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{Rules: rules}
}

// answers is a resolver of fixed answers; the last answer of a name stands.
type answers struct {
	names map[string][][]string
	asked map[string]int
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	name := strings.TrimSuffix(host, ".")
	if strings.HasPrefix(name, "aaaa") {
		name = strings.TrimSuffix(name, ".")
	}
	seq, ok := a.names[name]
	if !ok {
		if seq, ok = a.names[name+"."]; !ok {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true, Name: name}
		}
	}
	i := min(a.asked[name], len(seq)-1)
	a.asked[name]++
	var out []netip.Addr
	for _, s := range seq[i] {
		if to, isName := strings.CutPrefix(s, "CNAME:"); isName {
			if i+1 < len(seq) { // the next answer is the canonical name's
				seq = [][]string{seq[i+1]}
			} else {
				seq = [][]string{{"127.0.0.1"}}
			}
			_ = to
			return (&answers{names: map[string][][]string{name: seq}, asked: map[string]int{}}).LookupNetIP(context.Background(),
				"", name)
		}
		s = strings.TrimPrefix(strings.TrimPrefix(s, "AAAA:"), "A:")
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return nil, errors.New(s) // SERVFAIL, TIMEOUT, NXDOMAIN
		}
		out = append(out, addr)
	}
	return out, nil
}

// rigOf is a rig with the names and hops of a row.
func rigOf(t testing.TB, r *row) *rig {
	dns := &answers{names: map[string][][]string{
		"api.example.com": {{"93.184.215.14"}}, "files.example.org": {{"93.184.215.20"}},
		"a.trusted.example":   {{"93.184.215.30"}},
		"a.b.trusted.example": {{"93.184.215.31"}}, "deep.er.trusted.example": {{"93.184.215.32"}},
		"localhost":    {{"127.0.0.1", "::1"}},
		"evil.example": {{"93.184.215.66"}},
	}, asked: map[string]int{}}
	for k, v := range r.Input.DNS {
		dns.names[k] = [][]string{v}
	}
	for k, v := range r.Input.Sequence {
		dns.names[k] = v
	}
	g := newRig(t, Limits{}, "api.example.com", "files.example.org:8443", "*.trusted.example")
	g.dialer.Resolver = dns
	hop := 0
	g.answer = func(w http.ResponseWriter, _ *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if hop++; hop > len(r.Input.Hops) {
			return
		}
		h := r.Input.Hops[hop-1]
		if h.Location != nil {
			w.Header()["Location"] = []string{*h.Location}
		}
		w.WriteHeader(h.Status)
		if r.Input.Rebind != "" {
			for name := range r.Input.Sequence {
				dns.names[name] = [][]string{{r.Input.Rebind}}
			}
		}
	}
	return g
}

// browse has Go's own client ask through the proxy, and follow where the answers lead.
func browse(t testing.TB, g *rig, rawURL string) error {
	proxy := &url.URL{Scheme: "http", Host: g.proxy}
	c := &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{
			Proxy: http.ProxyURL(proxy), DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: g.roots},
		},
	}
	resp, err := c.Get(rawURL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// speak writes a URL to the proxy as it stands in the row: within CONNECT where it is for TLS, else in the
// request line, without the fragment, which no client sends.
func speak(t testing.TB, g *rig, rawURL string) {
	c, err := net.Dial("tcp", g.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	rest, secure := strings.CutPrefix(rawURL, "https://")
	if !secure {
		rawURL, _, _ = strings.Cut(rawURL, "#")
		_, _ = io.WriteString(c, "GET "+rawURL+" HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
		_, _ = io.ReadAll(c)
		return
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if i := strings.LastIndexByte(authority, ':'); i < 0 || strings.HasSuffix(authority, "]") {
		authority += ":443"
	}
	_, _ = io.WriteString(c, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	b := bufio.NewReader(c)
	if resp, err := http.ReadResponse(b, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		return
	}
	host, _, _ := strings.Cut(authority, ":")
	host = hostrule.Normal(host)
	_, _ = c.Write(hello(&host, 0))
	_, _ = b.ReadByte() // the answer of the host, or the end
}

// unjudged are rows that concern nothing that waldo does, with the reason.
var unjudged = map[string]string{
	"bounded_or_error":  "how much of an answer is read is up to the program in the sandbox: waldo has no fetch tool",
	"ignore":            "what a header of an answer makes a client do is the client's",
	"no_credentials":    "what a client answers to 401 is the client's",
	"no_follow":         "what a client follows is the client's; each request it makes is judged",
	"strip_credentials": "what a client sends after a redirect is the client's; secrets of broker: TestElsewhere",
}

// TestCorpusFetch plays every URL of the corpus at the proxy that a sandbox has: a denied one reaches no
// address at all.
func TestCorpusFetch(t *testing.T) {
	judged, left, byClient := 0, map[string]int{}, 0
	for _, r := range rows(t) {
		if r.Input.Kind != "fetch" {
			continue
		}
		if why := unjudged[r.Expect]; why != "" {
			left[r.Expect+": "+why]++
			continue
		}
		judged++
		g := rigOf(t, &r)
		var err error
		if len(r.Input.Hops) > 0 {
			err = browse(t, g, r.Input.URL)
		} else {
			speak(t, g, r.Input.URL)
		}
		codes := g.codes()
		_ = g.Close()
		g.mu.Lock()
		went, hosts := g.went, g.hosts
		g.mu.Unlock()
		refused := slices.ContainsFunc(codes, func(c string) bool { return c != "" && c != "egress.tls.certificate" })
		for _, a := range went {
			if Special(a.Addr()) != "" || a.Addr().String() == "93.184.215.66" {
				t.Errorf("%s %q: went to %v", r.ID, r.Input.URL, a)
			}
		}
		switch r.Expect {
		case "allow", "allow_or_policy":
			if err != nil || refused || len(went) == 0 {
				t.Errorf("%s %q: %v %q, went to %v", r.ID, r.Input.URL, err, codes, went)
			}
		case "deny":
			if len(hosts) > len(r.Input.Hops) || r.Input.Rebind == "" && len(went) > 0 ||
				r.Input.Rebind != "" && (err == nil || !slices.Contains(codes, "egress.address")) {
				t.Errorf("%s %q: %v %q, went to %v", r.ID, r.Input.URL, err, codes, went)
			}
		case "deny_or_same_host", "allow_or_deny_consistent":
			for _, h := range hosts {
				if h != "api.example.com" && !strings.HasSuffix(h, ".trusted.example") {
					t.Errorf("%s %q: %s was asked", r.ID, r.Input.URL, h)
				}
			}
		case "deny_at_hop_1":
			for _, a := range went {
				if a.String() != "93.184.215.14:443" {
					t.Errorf("%s %q: %v, went to %v", r.ID, r.Input.URL, err, went)
				}
			}
			if !refused { // it follows to nowhere, or reads another path of the same host
				byClient++
			}
		case "error", "policy_exfil":
			if len(went) > 0 || len(hosts) > 0 {
				t.Errorf("%s: went to %v", r.ID, went)
			}
		case "no_private_connection": // looked at above
		default:
			t.Errorf("%s: nobody judges %q", r.ID, r.Expect)
		}
	}
	t.Logf("%d rows are judged at the proxy; of these Go's client itself leads %d redirects nowhere else",
		judged, byClient)
	for why, n := range left {
		t.Logf("%d rows are not judged: %s", n, why)
	}
	if judged < corpus.Least(t, 200, 250) || byClient > 12 {
		t.Errorf("%d rows are judged, %d by the client alone: too few", judged, byClient)
	}
}

// TestCorpusAddresses judges addresses; private ones that are expected to pass are named by a rule.
func TestCorpusAddresses(t *testing.T) {
	judged := 0
	for _, r := range rows(t) {
		if r.Input.Kind != "dial" {
			continue
		}
		judged++
		a := netip.MustParseAddr(r.Input.IP)
		p := policy(t, "api.example.com")
		if r.Expect == "allow" && a.IsPrivate() {
			if why := p.Address("api.example.com", 80, a); why == nil || why.Code != "egress.address" {
				t.Errorf("%s %s: not named and not refused: %v", r.ID, a, why)
			}
			p = policy(t, netip.PrefixFrom(a, 24).Masked().String())
		}
		if got := p.Address("api.example.com", 80, a) == nil; got != (r.Expect == "allow") {
			t.Errorf("%s %s: allowed %v", r.ID, a, got)
		}
	}
	t.Logf("%d rows", judged)
}

// TestCorpusPatterns checks which patterns a contract accepts, and the hosts that they match.
func TestCorpusPatterns(t *testing.T) {
	judged := 0
	for _, r := range rows(t) {
		if r.Input.Kind != "config" && r.Input.Kind != "match" {
			continue
		}
		judged++
		rule, err := ParseRule(r.Input.Pattern)
		want, warning, _ := strings.Cut(r.Expect, "_")
		switch want {
		case "match", "no":
			if err != nil || rule.Host.Match(r.Input.Host) != (want == "match") {
				t.Errorf("%s: %q matches %q: %v %v", r.ID, r.Input.Pattern, r.Input.Host, rule.Host.Match(r.Input.Host), err)
			}
		case "invalid":
			if err == nil {
				t.Errorf("%s: %q is taken", r.ID, r.Input.Pattern)
			}
		case "valid":
			if err != nil {
				t.Errorf("%s: %v", r.ID, err)
			}
		case "warn":
			if err != nil || rule.Host.Warning(Special) != strings.ReplaceAll(warning, "_", " ") {
				t.Errorf("%s: %q: %v, warning %q", r.ID, r.Input.Pattern, err, rule.Host.Warning(Special))
			}
		}
	}
	t.Logf("%d rows", judged)
}
