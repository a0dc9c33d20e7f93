package egress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/egress"
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

// rows reads the corpus of the machine, or else the part that may be copied.
func rows(t testing.TB) (out []row) {
	root := "."
	for range 6 {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Join(root, "..")
	}
	f, err := os.Open(filepath.Join(root, "..", "shared", "corpora", "egress.jsonl"))
	if err != nil {
		t.Log("the shared corpus is not here: the rows under testdata alone are judged")
		if f, err = os.Open("testdata/egress.jsonl"); err != nil {
			t.Fatal(err)
		}
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var r row
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if len(out) < 300 {
		t.Fatalf("%d rows: this is not the corpus", len(out))
	}
	return out
}

func policy(t testing.TB, lines ...string) *egress.Policy {
	t.Helper()
	rules, err := egress.ParseRules(lines)
	if err != nil {
		t.Fatal(err)
	}
	return &egress.Policy{Rules: rules}
}

// context of every row: egress_context.json.
func corpusPolicy(t testing.TB) *egress.Policy {
	return policy(t, "api.example.com", "files.example.org:8443", "*.trusted.example")
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
			return (&answers{names: map[string][][]string{name: seq}, asked: map[string]int{}}).LookupNetIP(context.Background(), "", name)
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

// web answers each hop of a row in turn, and dials as the transport would.
type web struct {
	d    *egress.Dialer
	r    *row
	dns  *answers
	hop  int
	saw  []*http.Request
	went []netip.AddrPort
}

func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	port := uint16(443)
	if req.URL.Scheme == "http" {
		port = 80
	}
	host := req.URL.Hostname()
	if p := req.URL.Port(); p == "8443" {
		port = 8443
	}
	c, err := w.d.Dial(req.Context(), host, port)
	if err != nil {
		return nil, err
	}
	_ = c.Close()
	w.saw = append(w.saw, req)
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
	if w.hop < len(w.r.Input.Hops) {
		h := w.r.Input.Hops[w.hop]
		resp.StatusCode = h.Status
		if h.Location != nil {
			resp.Header["Location"] = []string{*h.Location}
		}
		for k, v := range h.Headers {
			resp.Header.Set(k, v)
		}
	}
	if w.hop++; w.r.Input.Rebind != "" {
		for name := range w.r.Input.Sequence {
			w.dns.names[name] = [][]string{{w.r.Input.Rebind}}
		}
	}
	return resp, nil
}

// fetch plays a row through Fetch and returns what was asked of the outside, and the error.
func fetch(t testing.TB, r *row) (*web, error) {
	dns := &answers{names: map[string][][]string{
		"api.example.com": {{"93.184.215.14"}}, "files.example.org": {{"93.184.215.20"}}, "a.trusted.example": {{"93.184.215.30"}},
		"a.b.trusted.example": {{"93.184.215.31"}}, "deep.er.trusted.example": {{"93.184.215.32"}}, "localhost": {{"127.0.0.1", "::1"}},
		"evil.example": {{"93.184.215.66"}},
	}, asked: map[string]int{}}
	for k, v := range r.Input.DNS {
		dns.names[k] = [][]string{v}
	}
	for k, v := range r.Input.Sequence {
		dns.names[k] = v
	}
	w := &web{r: r, dns: dns}
	w.d = &egress.Dialer{Policy: corpusPolicy(t), Resolver: dns, Connect: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
		w.went = append(w.went, to)
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	}}
	header := http.Header{}
	for k, v := range r.Input.Headers {
		header.Set(k, v)
	}
	resp, err := w.d.Fetch(t.Context(), w, r.Input.URL, header)
	if err == nil {
		_ = resp.Body.Close()
	}
	return w, err
}

// TestCorpusFetch plays every URL of the corpus: a denied one reaches no address at all.
func TestCorpusFetch(t *testing.T) {
	judged := 0
	for _, r := range rows(t) {
		if r.Input.Kind != "fetch" || r.Class == "response" {
			continue
		}
		judged++
		w, err := fetch(t, &r)
		var why *egress.Refusal
		refused := errors.As(err, &why)
		switch r.Expect {
		case "allow", "allow_or_policy", "ignore", "no_follow", "no_credentials":
			if err != nil {
				t.Errorf("%s %q: %v", r.ID, r.Input.URL, err)
			}
		case "deny":
			if !refused || r.Input.Rebind == "" && len(w.went) > 0 {
				t.Errorf("%s %q: err %v, went to %v", r.ID, r.Input.URL, err, w.went)
			}
		case "deny_or_same_host", "allow_or_deny_consistent":
			if !refused && (err != nil || len(w.saw) != 1 || strings.TrimSuffix(w.saw[0].URL.Hostname(), ".") != "api.example.com" && !strings.HasSuffix(w.saw[0].URL.Hostname(), "trusted.example")) {
				t.Errorf("%s %q: err %v, went to %v", r.ID, r.Input.URL, err, w.went)
			}
		case "deny_at_hop_1":
			if !refused || len(w.saw) != 1 || len(w.went) != 1 {
				t.Errorf("%s %q: err %v, %d requests, went to %v", r.ID, r.Input.URL, err, len(w.saw), w.went)
			}
		case "error", "policy_exfil":
			if err == nil || len(w.went) > 0 {
				t.Errorf("%s: no error, went to %v", r.ID, w.went)
			}
		case "no_private_connection":
			for _, a := range w.went {
				if egress.Special(a.Addr()) != "" {
					t.Errorf("%s: went to %v", r.ID, a)
				}
			}
		case "strip_credentials":
			if err != nil || len(w.saw) != 2 || len(w.saw[0].Header) != 3 || len(w.saw[1].Header) != 0 {
				t.Errorf("%s: %v, headers of the second request: %v", r.ID, err, w.saw[len(w.saw)-1].Header)
			}
		default:
			t.Errorf("%s: nobody judges %q", r.ID, r.Expect)
		}
	}
	t.Logf("%d rows", judged)
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

// TestCorpusPatterns judges what may be written in a contract, and what it matches.
func TestCorpusPatterns(t *testing.T) {
	judged := 0
	for _, r := range rows(t) {
		if r.Input.Kind != "config" && r.Input.Kind != "match" {
			continue
		}
		judged++
		rule, err := egress.ParseRule(r.Input.Pattern)
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
			if err != nil || rule.Host.Warning() != strings.ReplaceAll(warning, "_", " ") {
				t.Errorf("%s: %q: %v, warning %q", r.ID, r.Input.Pattern, err, rule.Host.Warning())
			}
		}
	}
	t.Logf("%d rows", judged)
}
