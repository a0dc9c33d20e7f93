package egress

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Refusal is why something does not go out. A nil Refusal refuses nothing.
type Refusal struct {
	Code string // egress.url.host; matched by tests and people's scripts
	Text string // for a person
}

// Error returns code and text.
func (r *Refusal) Error() string { return r.Code + ": " + r.Text }

func refuse(code, text string) *Refusal { return &Refusal{"egress." + code, text} }

// Rule lets requests to some hosts out. The zero Rule lets nothing out.
type Rule struct {
	Host     HostPattern
	Ports    []uint16 // empty: none
	Methods  []string // of HTTP; empty: any. With methods or paths, only plain HTTP goes out
	Paths    []string // of HTTP, as in /v1/* where * stands for what follows; empty: any
	Internal bool     // the host is of the operator's own network: its private addresses may be dialled
}

// standard are the ports of a rule that names none.
var standard = []uint16{80, 443}

// ParseRule reads one line: [METHOD[,METHOD] ]HOST[:PORT][/PATH]. Without a port it is for 80 and
// 443; with methods or a path for 80 alone, since nothing of them is seen inside TLS.
func ParseRule(line string) (Rule, error) {
	r := Rule{}
	rest := line
	if methods, after, ok := strings.Cut(line, " "); ok {
		for m := range strings.SplitSeq(methods, ",") {
			if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
				return Rule{}, fmt.Errorf("egress rule %q: %q is no method; write it as in GET,HEAD api.example.com/v1/*", line, m)
			}
			r.Methods = append(r.Methods, m)
		}
		rest = after
	}
	if _, err := netip.ParsePrefix(rest); err != nil {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			if rest[i:] != path.Clean(rest[i:]) && rest[i:] != path.Clean(rest[i:])+"/" || strings.ContainsAny(rest[i:], " ?#%\\") || strings.Contains(strings.TrimSuffix(rest[i:], "*"), "*") {
				return Rule{}, fmt.Errorf("egress rule %q: write the path plainly, as in /v1/* with a * at its end alone", line)
			}
			r.Paths, rest = []string{rest[i:]}, rest[:i]
		}
		if i := strings.LastIndexByte(rest, ':'); i >= 0 && (strings.Count(rest, ":") == 1 || strings.HasPrefix(rest, "[") && rest[i-1] == ']') {
			n, err := strconv.ParseUint(rest[i+1:], 10, 16)
			if err != nil || n == 0 || rest[i+1:] != strconv.FormatUint(n, 10) {
				return Rule{}, fmt.Errorf("egress rule %q: %q is no port", line, rest[i+1:])
			}
			r.Ports, rest = []uint16{uint16(n)}, rest[:i]
		}
	}
	var err error
	if r.Host, err = ParseHostPattern(rest); err != nil {
		return Rule{}, err
	}
	return r.complete(line)
}

// complete fills in the ports of a rule that names none.
func (r Rule) complete(line string) (Rule, error) {
	http := len(r.Methods)+len(r.Paths) > 0
	switch {
	case len(r.Ports) == 0 && http:
		r.Ports = []uint16{80}
	case len(r.Ports) == 0:
		r.Ports = slices.Clone(standard)
	case http && kindOf(r.Ports[0]) == isTLS:
		return Rule{}, fmt.Errorf("egress rule %q: no method or path is seen inside TLS; name the host alone", line)
	}
	return r, nil
}

// ParseRules reads lines, in order.
func ParseRules(lines []string) ([]Rule, error) {
	var out []Rule
	for _, l := range lines {
		r, err := ParseRule(l)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// String returns the rule as ParseRule reads it, but for its ports.
func (r Rule) String() string { return r.Host.String() }

// webOnly reports whether the rule looks at requests, so that nothing but plain HTTP goes out.
func (r Rule) webOnly() bool { return len(r.Methods)+len(r.Paths) > 0 }

// Policy is what one box may reach. The zero Policy reaches nothing.
type Policy struct {
	Rules  []Rule
	Limits Limits
}

// rules returns those that are for a host and port.
func (p *Policy) rules(host string, port uint16) (out []Rule) {
	for _, r := range p.Rules {
		if r.Host.Match(host) && slices.Contains(r.Ports, port) {
			out = append(out, r)
		}
	}
	return out
}

// Classify says why a connection to host and port does not go out; nil lets it. The host is a name
// or an address as ParseURL or ParseAuthority returned it.
func (p *Policy) Classify(host string, port uint16) *Refusal {
	if len(p.rules(host, port)) > 0 {
		return nil
	}
	if slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Host.Match(host) }) {
		return refuse("port", "the host is allowed at other ports")
	}
	return refuse("host", "no rule names this host")
}

// ClassifyURL reads a URL and says why a request to it does not go out.
func (p *Policy) ClassifyURL(method, rawURL string) (Target, *Refusal) {
	t, why := ParseURL(rawURL)
	if why != nil {
		return t, why
	}
	return t, p.request(method, t)
}

// request says why an HTTP request does not go out.
func (p *Policy) request(method string, t Target) *Refusal {
	if why := p.Classify(t.Host, t.Port); why != nil {
		return why
	}
	for _, r := range p.rules(t.Host, t.Port) {
		if r.allows(method, t.Path) {
			return nil
		}
	}
	return refuse("request", "the host is allowed, this method or path is not")
}

// allows reports whether a rule lets a method and a path with query through.
func (r Rule) allows(method, target string) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
		return false
	}
	if len(r.Paths) == 0 {
		return true
	}
	p, _, _ := strings.Cut(target, "?")
	if strings.ContainsAny(p, "%\\;") || p != path.Clean(p) && p != path.Clean(p)+"/" {
		return false // a server may read it as another path
	}
	return slices.ContainsFunc(r.Paths, func(want string) bool {
		if before, ok := strings.CutSuffix(want, "*"); ok {
			return strings.HasPrefix(p, before)
		}
		return p == want
	})
}

// Address says why an address is not dialled for a host; nil lets it. Addresses that are not public
// are dialled only where a rule names them, or the host is of the operator's own network.
func (p *Policy) Address(host string, port uint16, a netip.Addr) *Refusal {
	what := Special(a)
	if what == "" {
		return nil
	}
	for _, r := range p.Rules {
		if r.Host.prefix.IsValid() && r.Host.prefix.Contains(a.Unmap()) {
			return nil // named
		}
		if r.Host.name == "localhost" && normal(host) == "localhost" && a.IsLoopback() {
			return nil
		}
		if r.Internal && r.Host.Match(host) && slices.Contains(r.Ports, port) && internal(a) {
			return nil
		}
	}
	return refuse("address", "the name stands for an address that is not public: "+what)
}

// Ports returns every port that a rule names, in order.
func (p *Policy) Ports() []uint16 {
	var out []uint16
	for _, r := range p.Rules {
		out = append(out, r.Ports...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
