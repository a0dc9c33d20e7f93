// Package hostrule is the grammar of the lines that say what a sandbox may reach. Configuration and
// egress read lines with it, so that a line is good for both or for neither.
package hostrule

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Line is one line: [METHOD[,METHOD] ]HOST[:PORT][/PATH].
type Line struct {
	Methods []string // empty: none were written
	Host    Pattern
	Port    uint16 // 0: none was written
	Path    string // as in /v1/*, where * matches any suffix; "": no path given
}

// Parse reads a line.
func Parse(line string) (Line, error) {
	var l Line
	rest := line
	if methods, after, ok := strings.Cut(line, " "); ok {
		for m := range strings.SplitSeq(methods, ",") {
			if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
				return Line{},
					fmt.Errorf("egress rule %q: %q is not a method; write it as in GET,HEAD api.example.com/v1/*", line, m)
			}
			l.Methods = append(l.Methods, m)
		}
		rest = after
	}
	if scheme, after, url := strings.Cut(rest, "://"); url {
		return Line{}, fmt.Errorf("egress rule %q: leave %s:// out; a rule begins with its host, as in %s", line, scheme,
			strings.TrimRight(after, "/"))
	}
	if _, err := netip.ParsePrefix(rest); err != nil {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			if why := BadPath(rest[i:]); why != "" {
				return Line{}, fmt.Errorf("egress rule %q: %s", line, why)
			}
			l.Path, rest = rest[i:], rest[:i]
		}
		if i := strings.LastIndexByte(rest, ':'); i >= 0 &&
			(strings.Count(rest, ":") == 1 || strings.HasPrefix(rest, "[") && rest[i-1] == ']') {
			n, err := strconv.ParseUint(rest[i+1:], 10, 16)
			if err != nil || n == 0 || rest[i+1:] != strconv.FormatUint(n, 10) {
				return Line{}, fmt.Errorf("egress rule %q: %q is not a port", line, rest[i+1:])
			}
			l.Port, rest = uint16(n), rest[:i]
		}
	}
	var err error
	l.Host, err = ParsePattern(rest)
	return l, err
}

// BadPath says why a path cannot stand in a rule; "" where it can.
func BadPath(p string) string {
	if !strings.HasPrefix(p, "/") || p != path.Clean(p) && p != path.Clean(p)+"/" ||
		strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune("?#%\\;", c) }) ||
		strings.Contains(strings.TrimSuffix(p, "*"), "*") {
		return "write the path plainly, as in /v1/* with a * at its end alone"
	}
	return ""
}

// MaxName is how many bytes a host name may have (RFC 1123 §2.1).
const MaxName = 253

// maxBelow bounds the bytes before a wildcard's domain: a name is data that leaves with its DNS query, even if the
// connection is refused.
const maxBelow = 100

// Pattern is the host part of a rule: a name, every name below a domain, or addresses. The zero Pattern matches
// nothing.
type Pattern struct {
	Any    bool         // every full name and every address; no text says it, and the other fields are empty
	Name   string       // lower case, without a last dot
	Below  bool         // every name below Name, and not Name itself
	Prefix netip.Prefix // addresses; Name is empty
}

// ParsePattern reads one host of a rule: "api.example.com", "*.example.com", "localhost", an
// address or a prefix of addresses. It accepts at most 253 bytes of ASCII letters, digits, '-' and
// '.' (RFC 1123 §2.1); it refuses bare "*", wildcards such as "*.com", and names of one label.
func ParsePattern(s string) (Pattern, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && a.Zone() == "" {
		return Pattern{Prefix: netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() || p.Bits() < 8 || p.Addr().Is4In6() {
			return Pattern{}, fmt.Errorf("egress pattern %q: write the prefix in its shortest form, with 8 bits or more", s)
		}
		return Pattern{Prefix: p}, nil
	}
	name, below := strings.CutPrefix(strings.ToLower(s), "*.")
	if name == "localhost" && !below {
		return Pattern{Name: name}, nil
	}
	if why := BadName(name); why != "" {
		return Pattern{}, fmt.Errorf("egress pattern %q: %s; write a name such as api.example.com or *.example.com", s, why)
	}
	if !strings.Contains(name, ".") {
		return Pattern{},
			fmt.Errorf("egress pattern %q: too wide or not a full name; name the registrable domain, as in *.example.com", s)
	}
	return Pattern{Name: name, Below: below}, nil
}

// Warning says what a person should think about before letting the pattern stand; "" for nothing. special
// names the kind of an address that is not public.
func (p Pattern) Warning(special func(netip.Addr) string) string {
	switch {
	case p.Prefix.IsValid() && special(p.Prefix.Addr()) != "":
		return "private"
	case p.Name == "localhost":
		return "private"
	case p.Prefix.IsValid() || !p.Below:
		return ""
	}
	suffix, icann := publicsuffix.PublicSuffix(p.Name)
	switch {
	case suffix != p.Name:
		return ""
	case icann:
		return "public suffix"
	}
	return "shared suffix" // anyone can have a name below it
}

// Match reports whether the pattern is for a host: a name or an address.
func (p Pattern) Match(host string) bool {
	if p.Prefix.IsValid() {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Zone() == "" && p.Prefix.Contains(a.Unmap())
	}
	host = Normal(host)
	if p.Any {
		_, err := netip.ParseAddr(host)
		return err == nil || BadName(host) == "" && strings.Contains(host, ".")
	}
	if p.Name == "" || !p.Below {
		return p.Name != "" && host == p.Name
	}
	before, ok := strings.CutSuffix(host, "."+p.Name)
	return ok && before != "" && len(before) <= maxBelow
}

// Covers reports whether p matches every host that q matches.
func (p Pattern) Covers(q Pattern) bool {
	switch {
	case p.Prefix.IsValid() || q.Prefix.IsValid():
		return p.Prefix.IsValid() && q.Prefix.IsValid() && p.Prefix.Bits() <= q.Prefix.Bits() &&
			p.Prefix.Contains(q.Prefix.Addr())
	case q.Name == "":
		return false
	case !q.Below:
		return p.Match(q.Name)
	}
	return p.Below && (p.Name == q.Name || strings.HasSuffix(q.Name, "."+p.Name))
}

// String returns the line in the form that Parse reads.
func (l Line) String() string {
	host := l.Host.String()
	if l.Port != 0 {
		if l.Host.Prefix.IsValid() && l.Host.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
		host += ":" + strconv.Itoa(int(l.Port))
	}
	if len(l.Methods) > 0 {
		host = strings.Join(l.Methods, ",") + " " + host
	}
	return host + l.Path
}

// String returns the pattern as it is written in a contract.
func (p Pattern) String() string {
	switch {
	case p.Any:
		return "*"
	case p.Prefix.IsValid() && p.Prefix.IsSingleIP():
		return p.Prefix.Addr().String()
	case p.Prefix.IsValid():
		return p.Prefix.String()
	case p.Below:
		return "*." + p.Name
	}
	return p.Name
}

// Normal returns a name in lower case without the one last dot that makes it absolute.
func Normal(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// BadName returns why a lower-case string is not a host name, or "".
func BadName(s string) string {
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
			return "a label begins like an encoded one but is not valid"
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "a name does not end in a number: WHATWG reads it as an address"
	}
	return ""
}

// Loopback reports whether the host of a URL is this machine: localhost, or an address of loopback.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
