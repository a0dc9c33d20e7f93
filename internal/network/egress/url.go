package egress

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"waldo/internal/model/hostrule"
)

// Target is where a request goes, read once. Nothing reads its URL again.
type Target struct {
	Scheme string // http or https
	Host   string // a name in lower case, or an address in its shortest form
	Port   uint16
	Path   string // with its query, as it is judged and sent; never empty
}

// maxURL is how many bytes a URL may have.
const maxURL = 8 << 10

// ParseURL parses an absolute http or https URL. It refuses every form that Go and WHATWG (url.spec.whatwg.org) read
// differently: user names, backslashes and blanks before the path, hosts that are not plain ASCII, numeric addresses
// in unusual forms, and control characters.
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
	end := strings.IndexAny(rest, "/?#") // a fragment is refused below
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	host, port, why := parseAuthority(authority, map[string]uint16{"http": 80, "https": 443}[scheme])
	if why != nil {
		return Target{}, why
	}
	t := Target{Scheme: scheme, Host: host, Port: port}
	if why := t.setPath(rest[end:]); why != nil {
		return t, why
	}
	return t, t.agree(scheme + "://" + authority + "/")
}

// setPath parses the path and query of a request target. The result is checked and sent byte for byte: invalid path
// characters are escaped, as Go escapes them.
func (t *Target) setPath(s string) *Refusal {
	if strings.Contains(s, "#") {
		return refuse("url.fragment", "a request target has no fragment")
	}
	raw, query, asks := strings.Cut(s, "?")
	plain, err := url.PathUnescape(raw)
	if err != nil {
		return refuse("http", "no request is written so")
	}
	if raw = (&url.URL{Path: plain, RawPath: raw}).EscapedPath(); !strings.HasPrefix(raw, "/") && raw != "*" {
		raw = "/" + raw
	}
	if t.Path = raw; asks {
		t.Path += "?" + query
	}
	return nil
}

// url returns the URL that a request is sent to: the target and nothing else.
func (t Target) url() *url.URL {
	raw, query, asks := strings.Cut(t.Path, "?")
	plain, _ := url.PathUnescape(raw) // setPath has read it
	return &url.URL{Scheme: t.Scheme, Host: net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))),
		Path: plain, RawPath: raw, RawQuery: query, ForceQuery: asks && query == ""}
}

// withoutParameters takes the parameters out of the query whose names drop reports.
func (t *Target) withoutParameters(drop func(name string) bool) {
	raw, query, _ := strings.Cut(t.Path, "?")
	kept, dropped := "?", false
	for rest := query; rest != ""; {
		n := strings.IndexFunc(rest, separates) + 1 // each piece with its separator
		if n == 0 {
			n = len(rest)
		}
		if drop(parameter(strings.TrimRightFunc(rest[:n], separates))) {
			dropped = true
		} else {
			kept += rest[:n]
		}
		rest = rest[n:]
	}
	if kept = strings.TrimRightFunc(kept, separates); kept == "?" {
		kept = ""
	}
	if dropped {
		t.Path = raw + kept
	}
}

// separates reports whether a character ends a piece of a query. Some servers read ; as &.
func separates(c rune) bool { return c == '&' || c == ';' }

// plainName returns the name of a parameter as the most lenient servers read it: in lower case, without what
// stands in brackets, and with _ for a dot, a blank and -.
func plainName(name string) string {
	name, _, _ = strings.Cut(strings.Trim(strings.ToLower(name), " \t\r\n\x00"), "[")
	name, _, _ = strings.Cut(name, "\x00")
	return strings.NewReplacer(".", "_", " ", "_", "-", "_").Replace(name)
}

// parameter returns the name in a piece of a query.
func parameter(piece string) string {
	name, _, _ := strings.Cut(piece, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		return plain
	}
	return name
}

// agree holds our reading against Go's own: two parsers, one host.
func (t Target) agree(s string) *Refusal {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || hostrule.Normal(u.Hostname()) != t.Host && !sameAddr(u.Hostname(), t.Host) {
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

// parseAuthority parses "host" or "host:port"; standard is the default port, or 0 without one.
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
		if err != nil || !strings.HasSuffix(in, "]") || a.Is4() { // no zone: % is refused before
			return "", refuse("url.host", "no address is written so")
		}
		return a.Unmap().String(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return a.String(), nil
	}
	host := hostrule.Normal(s)
	if why := hostrule.BadName(host); why != "" {
		return "", refuse("url.host", why)
	}
	return host, nil
}
