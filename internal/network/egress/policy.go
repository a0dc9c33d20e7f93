// Package egress is the network access of a sandbox. It answers the sandbox's DNS questions, accepts its connections,
// and relays those that rules allow to the checked address. It knows no contract and no policy: rules come in as
// data, attempts go out as data.
package egress

import (
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/hostrule"
	"waldo/internal/network/egress/packages"
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
	Host     hostrule.Pattern
	Ports    []uint16         // empty: none
	Methods  []string         // of HTTP; empty: any. With methods or paths, only HTTP goes out, inside TLS or plain
	Paths    []string         // of HTTP, as in /v1/* where * matches any suffix; empty: any
	Internal bool             // the host is of the operator's own network: its private addresses may be dialled
	Registry *packages.Source // the host is a registry: only its packages pass; nil: an ordinary host
	Reply    *Reply           // waldo answers these requests itself; nil: they go out
}

// standard are the ports of a rule that names none.
var standard = []uint16{80, 443}

// ParseRule reads one line: [METHOD[,METHOD] ]HOST[:PORT][/PATH]. Without a port it is for 80 and 443.
func ParseRule(line string) (Rule, error) {
	l, err := hostrule.Parse(line)
	if err != nil {
		return Rule{}, err
	}
	r := Rule{Host: l.Host, Methods: l.Methods, Ports: slices.Clone(standard)}
	if l.Port != 0 {
		r.Ports = []uint16{l.Port}
	}
	if l.Path != "" {
		r.Paths = []string{l.Path}
	}
	return r, nil
}

// Public is the rule for every public host at ports 80 and 443. Policy.Address refuses the other addresses.
func Public() Rule { return Rule{Host: hostrule.Pattern{Any: true}, Ports: slices.Clone(standard)} }

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

// webOnly reports whether the rule looks at requests, so that nothing but HTTP goes out.
func (r Rule) webOnly() bool { return len(r.Methods)+len(r.Paths) > 0 }

// Policy is the set of destinations of one sandbox. The zero Policy reaches nothing.
type Policy struct {
	Rules     []Rule
	Off       []Rule // refused as all else, but expected: the client's telemetry and the like
	Limits    Limits
	Addresses map[string][]netip.Prefix // where the operator says that a host stands: it is dialled there and nowhere else
}

// rules returns the rules for a host and port. At a registry's host only the registry's rules apply: a wider rule
// cannot bypass its pins.
func (p *Policy) rules(host string, port uint16) (out []Rule) {
	registry := slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Registry != nil && r.Host.Match(host) })
	for _, r := range p.Rules {
		if r.Host.Match(host) && slices.Contains(r.Ports, port) && (r.Registry != nil || !registry) {
			out = append(out, r)
		}
	}
	return out
}

// errOff refuses what a profile switches off.
var errOff = refuse("off", "the profile switches this off")

// Classify says why a connection to host and port does not go out; nil lets it. The host is a name
// or an address as ParseURL or ParseAuthority returned it.
func (p *Policy) Classify(host string, port uint16) *Refusal {
	if len(p.rules(host, port)) > 0 {
		if a, err := netip.ParseAddr(host); err == nil {
			return p.Address(host, port, a)
		}
		return nil
	}
	if slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Host.Match(host) }) {
		return refuse("port", "the host is allowed at other ports")
	}
	if slices.ContainsFunc(p.Off, func(r Rule) bool { return len(r.Paths) == 0 && r.Host.Match(host) }) {
		return errOff
	}
	return refuse("host", "no rule names this host")
}

// requestsOnly reports whether every rule for a host and port looks at requests.
func (p *Policy) requestsOnly(host string, port uint16) bool {
	return !slices.ContainsFunc(p.rules(host, port), func(r Rule) bool { return !r.webOnly() })
}

// request says why an HTTP request does not go out.
func (p *Policy) request(method string, t Target) *Refusal {
	if why := p.Classify(t.Host, t.Port); why != nil {
		return why
	}
	passes := false
	for _, r := range p.rules(t.Host, t.Port) {
		if !r.allows(method, t.Path) {
			continue
		}
		if r.Registry != nil {
			path, query, _ := strings.Cut(r.Registry.Plain(t.Path), "?")
			path, _ = plainPath(path)
			if why := r.Registry.Refuses(path, query); why != "" {
				return refuse("packages.pin", why)
			}
		}
		passes = true
	}
	if !passes {
		if slices.ContainsFunc(p.Off, func(r Rule) bool { return r.Host.Match(t.Host) && r.allows(method, t.Path) }) {
			return errOff
		}
		return refuse("request", "the host is allowed, this method or path is not")
	}
	return nil
}

// pack returns the package that a request that passed is a file of.
func (p *Policy) pack(t Target) (packages.Package, bool) {
	for _, r := range p.rules(t.Host, t.Port) {
		if r.Registry == nil || !r.allows("GET", t.Path) {
			continue
		}
		path, _ := plainPath(r.Registry.Plain(t.Path))
		if f, ok := r.Registry.File(path); ok {
			return f, true
		}
	}
	return packages.Package{}, false
}

// allows reports whether a rule lets a method and a path with query through.
func (r Rule) allows(method, target string) bool {
	if r.Registry != nil {
		target = r.Registry.Plain(target)
	}
	return (len(r.Methods) == 0 || slices.Contains(r.Methods, method)) && (len(r.Paths) == 0 || underPaths(r.Paths, target))
}

// underPaths reports whether a path with query matches a rule's paths. A path that servers can read in different ways
// matches no rule.
func underPaths(rules []string, target string) bool {
	p, ok := plainPath(target)
	return ok && slices.ContainsFunc(rules, func(want string) bool {
		if before, ok := strings.CutSuffix(want, "*"); ok {
			return strings.HasPrefix(p, before)
		}
		return p == want
	})
}

// plainPath returns the unescaped path of a request, and whether it has only one reading. It allows no dot or empty
// segments, no backslash, no parameters of segments. It allows no escape of a separator, a percent sign, a control
// character or an unreserved character (RFC 3986 §2.4, §6.2.2).
func plainPath(target string) (string, bool) {
	raw, _, _ := strings.Cut(target, "?")
	p, err := url.PathUnescape(raw)
	if err != nil || raw != path.Clean(raw) && raw != path.Clean(raw)+"/" || !utf8.ValidString(p) ||
		strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' || c == ';' || c == '%' }) {
		return "", false
	}
	for i := strings.IndexByte(raw, '%'); i >= 0; i = strings.IndexByte(raw, '%') {
		c, _ := strconv.ParseUint(raw[i+1:i+3], 16, 8)
		if unreserved := c < 0x80 && (c == '/' || strings.IndexByte("-._~", byte(c)) >= 0 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'); unreserved {
			return "", false
		}
		raw = raw[i+3:]
	}
	return p, true
}

// Address says why an address is not dialled for a host; nil lets it. Addresses that are not public
// are dialled only where a rule names them, or the host is of the operator's own network.
func (p *Policy) Address(host string, port uint16, a netip.Addr) *Refusal {
	if own, ok := p.Addresses[hostrule.Normal(host)]; ok {
		if !stands(own, a.Unmap()) {
			return refuse("address", "the name stands for an address that is not one of its own under addresses")
		}
		return nil
	}
	what := Special(a)
	if what == "" {
		return nil
	}
	for _, r := range p.Rules {
		if r.Host.Prefix.IsValid() && r.Host.Prefix.Contains(a.Unmap()) && slices.Contains(r.Ports, port) {
			return nil // named
		}
		if r.Host.Name == "localhost" && hostrule.Normal(host) == "localhost" && a.IsLoopback() {
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

// Judge reads a URL and says why a request to it does not go out, as the proxy and the server inside TLS judge it.
func (p *Policy) Judge(method, rawURL string) *Refusal {
	t, why := ParseURL(rawURL)
	if why != nil {
		return why
	}
	return p.request(method, t)
}
