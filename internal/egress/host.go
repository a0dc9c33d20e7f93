package egress

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// MaxName is how many bytes a host name may have (RFC 1123 §2.1).
const MaxName = 253

// maxBelow is how many bytes may stand before the domain of a wildcard: a name is data that leaves
// with the question for it, whatever comes of the connection.
const maxBelow = 100

// HostPattern is what a rule says of hosts: a name, every name below a domain, or addresses. The
// zero HostPattern matches nothing.
type HostPattern struct {
	name   string       // lower case, without a last dot
	below  bool         // every name below name, and not name itself
	prefix netip.Prefix // addresses; name is empty
}

// ParseHostPattern reads one host of a rule: "api.example.com", "*.example.com", "localhost", an
// address or a prefix of addresses. It accepts at most 253 bytes of ASCII letters, digits, '-' and
// '.' (RFC 1123 §2.1); it refuses bare "*", wildcards such as "*.com", and names of one label.
func ParseHostPattern(s string) (HostPattern, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && a.Zone() == "" {
		return HostPattern{prefix: netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() || p.Bits() < 8 || p.Addr().Is4In6() {
			return HostPattern{}, fmt.Errorf("egress pattern %q: write the prefix in its shortest form, with 8 bits or more", s)
		}
		return HostPattern{prefix: p}, nil
	}
	name, below := strings.CutPrefix(strings.ToLower(s), "*.")
	if name == "localhost" && !below {
		return HostPattern{name: name}, nil
	}
	if why := badName(name); why != "" {
		return HostPattern{}, fmt.Errorf("egress pattern %q: %s; write a name such as api.example.com or *.example.com", s, why)
	}
	if !strings.Contains(name, ".") {
		return HostPattern{}, fmt.Errorf("egress pattern %q: too wide or not a full name; name the registrable domain, as in *.example.com", s)
	}
	return HostPattern{name: name, below: below}, nil
}

// Warning says what a person should think about before letting the pattern stand; "" for nothing.
func (p HostPattern) Warning() string {
	switch {
	case p.prefix.IsValid() && Special(p.prefix.Addr()) != "":
		return "private"
	case p.name == "localhost":
		return "private"
	case p.prefix.IsValid() || !p.below:
		return ""
	}
	suffix, icann := publicsuffix.PublicSuffix(p.name)
	switch {
	case suffix != p.name:
		return ""
	case icann:
		return "public suffix"
	}
	return "shared suffix" // anyone can have a name below it
}

// Match reports whether the pattern is for a host: a name or an address.
func (p HostPattern) Match(host string) bool {
	if p.prefix.IsValid() {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Zone() == "" && p.prefix.Contains(a.Unmap())
	}
	host = normal(host)
	if p.name == "" || !p.below {
		return p.name != "" && host == p.name
	}
	before, ok := strings.CutSuffix(host, "."+p.name)
	return ok && before != "" && len(before) <= maxBelow
}

// String returns the pattern as it is written in a contract.
func (p HostPattern) String() string {
	switch {
	case p.prefix.IsValid() && p.prefix.IsSingleIP():
		return p.prefix.Addr().String()
	case p.prefix.IsValid():
		return p.prefix.String()
	case p.below:
		return "*." + p.name
	}
	return p.name
}

// normal returns a name in lower case without the one last dot that makes it absolute.
func normal(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// badName says why a lower-case string is no name of a host; "" when it is one.
func badName(s string) string {
	if s == "" || len(s) > MaxName {
		return "it has no length of a name"
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		switch {
		case l == "" || len(l) > 63:
			return "a label has no length of a label"
		case l[0] == '-' || l[len(l)-1] == '-':
			return "a label begins or ends with -"
		case strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
			return "letters, digits, - and . alone make a name"
		case len(l) >= 4 && l[2:4] == "--" && (l[:2] != "xn" || len(l) < 5):
			return "a label begins like an encoded one and is none"
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "a name does not end in a number: WHATWG reads it as an address"
	}
	return ""
}
