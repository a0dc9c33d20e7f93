package contract

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"waldo/internal/model/hostrule"
)

// Network says what a capability may reach. The zero value reaches nothing.
type Network struct {
	Internal bool                `json:"internal,omitempty"` // internal_only: the operator's named set
	Allow    []string            `json:"allow,omitempty"`    // host patterns, as in *.example.com
	Limits   Traffic             `json:"limits,omitzero"`
	Packages map[string]Registry `json:"packages,omitempty"` // registries by manager: npm, pypi
	Off      []string            `json:"off,omitempty"`      // what a profile switches off: refused, and no denial
	Unheld   bool                `json:"unheld,omitempty"`   // of a server outside of any sandbox: nothing bounds it
	Public   bool                `json:"public,omitempty"`   // every public host: from --allow-network, never from a file
}

// Traffic bounds the traffic of one sandbox. A zero field takes waldo's own bound.
type Traffic struct {
	Bytes             int `json:"bytes,omitempty"` // both ways, over the life of the sandbox
	BytesPerSecond    int `json:"bytes_per_second,omitempty"`
	RequestsPerSecond int `json:"requests_per_second,omitempty"` // of HTTP, and other connections
	Connections       int `json:"connections,omitempty"`         // at a time
}

// Registry is where packages of one manager come from. The zero value is the machine's own registry,
// and every package in it.
type Registry struct {
	URL   string   `json:"registry,omitempty"` // https; empty: as this machine is set
	Files []string `json:"files,omitempty"`    // hosts, perhaps with a path, that files come from besides
	Lock  string   `json:"lock,omitempty"`     // whose pins hold; empty: none do
	Suite string   `json:"suite,omitempty"`    // of Debian's: suite and components; empty: this machine's release, main
}

// Reaches reports whether the network allows anything.
func (n Network) Reaches() bool {
	return len(n.Allow) > 0 || n.Internal || len(n.Packages) > 0 || n.Public
}

// RegistryLine is the egress line for the address of a registry: its host and the paths below it. It returns "" for
// an address that is not plain https.
func RegistryLine(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Opaque != "" || strings.ContainsAny(s, "?#% ") ||
		strings.HasPrefix(u.Host, "*") {
		return ""
	}
	line := u.Host + path.Join("/", u.Path, "*")
	if strings.ContainsAny(u.Path, "*") || strings.Contains(u.Path, "//") {
		return ""
	}
	if _, sound := HostLine(line); !sound {
		return ""
	}
	return line
}

// HostLine reads a line of hosts as egress will read it. A configuration names hosts in lower case, and
// neither addresses nor the ports that waldo serves itself.
func HostLine(s string) (hostrule.Line, bool) {
	l, err := hostrule.Parse(s)
	_, rest, asks := strings.Cut(s, " ")
	if !asks {
		rest = s
	}
	return l, err == nil && HostName(l.Host.String()) && strings.HasPrefix(rest, l.Host.String()) &&
		l.Port != 53 && l.Port != 3128
}

// LoopbackLine reports whether a line names a port of this machine's loopback, as in localhost:5432.
func LoopbackLine(s string) bool {
	l, err := hostrule.Parse(s)
	return err == nil && l.Port != 0 && l.Port != 53 && l.Port != 3128 && s == "localhost:"+strconv.Itoa(int(l.Port))
}

// HostHint says how to write a line that is not sound.
func HostHint(l hostrule.Line) string {
	if l.Host.Name == "localhost" {
		return "name its port, as in localhost:5432"
	}
	return "as in api.example.com, *.example.com, db.example.com:5432 or GET api.example.com/v1/*"
}

// HostName reports whether s is a host in lower case, perhaps with "*." before it, and no address.
func HostName(s string) bool {
	h, err := hostrule.ParsePattern(s)
	return err == nil && h.Name != "" && h.Name != "localhost" && h.String() == s
}
