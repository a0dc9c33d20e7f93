package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Target is where a request goes, read once. Nothing reads its URL again.
type Target struct {
	Scheme string // http or https
	Host   string // a name in lower case, or an address in its shortest form
	Port   uint16
	Path   string // with its query, as sent; never empty
}

// maxURL is how many bytes a URL may have.
const maxURL = 8 << 10

// ParseURL reads an absolute http or https URL. It refuses whatever Go and WHATWG (url.spec.whatwg.org)
// read in two ways: user names, backslashes and blanks before the path, hosts that are not plain
// ASCII, numbers for addresses in any but the usual form, and control characters anywhere.
func ParseURL(s string) (Target, *Refusal) {
	if len(s) > maxURL {
		return Target{}, refuse("url.long", "a URL has at most 8192 bytes")
	}
	if strings.ContainsFunc(strings.TrimRight(s, " "), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return Target{}, refuse("url.control", "blanks and control characters")
	}
	s = strings.TrimRight(s, " ")
	scheme, rest, ok := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return Target{}, refuse("url.scheme", "only http:// and https:// go out")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	host, port, why := parseAuthority(authority, map[string]uint16{"http": 80, "https": 443}[scheme])
	if why != nil {
		return Target{}, why
	}
	path := strings.SplitN(rest[end:], "#", 2)[0]
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	t := Target{Scheme: scheme, Host: host, Port: port, Path: path}
	return t, t.agree(scheme + "://" + authority + "/")
}

// agree holds our reading against Go's own: two parsers, one host.
func (t Target) agree(s string) *Refusal {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || normal(u.Hostname()) != t.Host && !sameAddr(u.Hostname(), t.Host) {
		return refuse("url.parsers", "parsers read this URL in different ways")
	}
	return nil
}

func sameAddr(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Unmap() == y.Unmap()
}

// ParseAuthority reads "host:port", where the port must be there, as in CONNECT.
func ParseAuthority(s string) (host string, port uint16, why *Refusal) { return parseAuthority(s, 0) }

// parseAuthority reads "host" or "host:port"; a port of 0 means that there is no default.
func parseAuthority(s string, standard uint16) (string, uint16, *Refusal) {
	if strings.ContainsAny(s, "@\\%") {
		return "", 0, refuse("url.host", "a host has no user name, backslash or escape")
	}
	host, digits, given := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, digits, given = s[:i], s[i+1:], true
	}
	port := standard
	if given {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits != strconv.FormatUint(n, 10) {
			return "", 0, refuse("url.port", "no port is written so")
		}
		port = uint16(n)
	}
	if port == 0 {
		return "", 0, refuse("url.port", "a port is missing")
	}
	host, why := parseHost(host)
	return host, port, why
}

// parseHost reads a name or an address. IPv6 stands in brackets; IPv4 has four plain numbers.
func parseHost(s string) (string, *Refusal) {
	if in, ok := strings.CutPrefix(s, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(in, "]"))
		if err != nil || !strings.HasSuffix(in, "]") || a.Is4() || a.Zone() != "" {
			return "", refuse("url.host", "no address is written so")
		}
		return a.Unmap().String(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a.String(), nil
	}
	host := normal(s)
	if why := badName(host); why != "" {
		return "", refuse("url.host", why)
	}
	return host, nil
}
