package contract

import (
	"maps"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Registry is where packages of one manager come from. The zero value is the machine's own registry,
// and every package in it.
type Registry struct {
	URL   string   `json:"registry,omitempty"` // https; empty: as this machine is set
	Files []string `json:"files,omitempty"`    // hosts, perhaps with a path, that files come from besides
	Lock  string   `json:"lock,omitempty"`     // whose pins hold; empty: none do
}

// Reaches reports whether the network allows anything.
func (n Network) Reaches() bool { return len(n.Allow) > 0 || n.Internal || len(n.Packages) > 0 }

func (p *parser) packages(f field) map[string]Registry {
	out := map[string]Registry{}
	for _, g := range p.fields(f.val, inPackages) {
		if g.val.Kind == yaml.MappingNode && g.name != "debian" {
			out[g.name] = p.registry(g)
		} else if p.word(g, inPackages) == "allow" {
			out[g.name] = Registry{}
		}
	}
	if f.val.Kind == yaml.MappingNode && len(f.val.Content) == 0 {
		p.fail(f.val, "value.empty", "as in {npm: allow}", "packages says nothing")
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (p *parser) registry(f field) (r Registry) {
	pinned := false
	for _, g := range p.fields(f.val, inRegistry) {
		switch g.name {
		case "registry":
			r.URL = p.text(g)
			switch {
			case strings.ContainsAny(r.URL, "@?"):
				p.fail(g.val, codeLiteral, "put the token under secrets, with inject", "the address of a registry must not hold a password")
			case r.URL != "" && RegistryLine(r.URL) == "":
				p.fail(g.val, "value.host", "as in https://registry.example.com/npm", "%q is not the https address of a registry", g.name)
			}
		case "files":
			r.Files = p.hosts(g)
			for i, h := range r.Files {
				if strings.ContainsAny(h, " ") || strings.HasPrefix(h, "*") {
					p.fail(g.val.Content[i], "value.host", "as in files.example.com or files.example.com/npm/*", "files wants one host in each line, without methods")
				}
			}
		case "pins":
			pinned = p.word(g, inRegistry) == "required"
		case "lock":
			if r.Lock = p.text(g); r.Lock != "" && !filepath.IsLocal(r.Lock) && !filepath.IsAbs(r.Lock) {
				p.fail(g.val, "value.name", "as in ./package-lock.json", "the lock stands in the folder of this file, below it, or at an absolute path")
			}
		}
	}
	if len(f.val.Content) == 0 {
		p.fail(f.val, "value.empty", "write allow", "%s says nothing", f.name)
	}
	if pinned != (r.Lock != "") {
		p.fail(f.key, "key.missing", "as in {pins: required, lock: ./package-lock.json}", "pins: required and lock stand together")
	}
	return r
}

// addresses reads where hosts of the operator's own stand: one host, its addresses or prefixes.
func (p *parser) addresses(f field) {
	for _, e := range p.entries(f) {
		if !hostPattern(e.name) || strings.HasPrefix(e.name, "*") {
			p.fail(e.key, "value.host", "as in registry.example.com", "%q is not the name of one host", cut(e.name, 40))
		}
		for i, s := range p.texts(e) {
			a, err := netip.ParsePrefix(s)
			if one, no := netip.ParseAddr(s); no == nil {
				a, err = netip.PrefixFrom(one, one.BitLen()), nil
			}
			switch {
			case err != nil || a != a.Masked() || a.Addr().Is4In6() || a.Addr().Zone() != "":
				p.fail(e.val.Content[i], "value.address", "as in 10.20.0.7 or 10.20.0.0/24", "%q is not an address or a prefix in its shortest form", cut(s, 60))
			case a.Bits() < 16 || a.Addr().Is6() && a.Bits() < 48:
				p.fail(e.val.Content[i], "value.address", "write the networks that it stands in, of 16 bits or more, 48 with IPv6", "%q is too wide for one host", cut(s, 60))
			}
			if p.cfg.Addresses == nil {
				p.cfg.Addresses = map[string][]netip.Prefix{}
			}
			p.cfg.Addresses[e.name] = append(p.cfg.Addresses[e.name], a)
		}
	}
}

func (c *Config) addresses() map[string][]string {
	out := map[string][]string{}
	for host, prefixes := range c.Addresses {
		for _, a := range prefixes {
			out[host] = append(out[host], a.String())
		}
	}
	return out
}

// RegistryLine is the egress line for the address of a registry: its host and the paths below it. It returns "" for
// an address that is not plain https.
func RegistryLine(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Opaque != "" || strings.ContainsAny(s, "?#% ") || strings.HasPrefix(u.Host, "*") {
		return ""
	}
	line := u.Host + path.Join("/", u.Path, "*")
	if strings.ContainsAny(u.Path, "*") || strings.Contains(u.Path, "//") {
		return ""
	}
	if _, sound := hostLine(line); !sound {
		return ""
	}
	return line
}

func (n Network) packages() any {
	m := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(n.Packages)) {
		r, e := n.Packages[name], map[string]any{}
		putIf(e, "registry", r.URL, r.URL != "")
		putIf(e, "files", r.Files, len(r.Files) > 0)
		putIf(e, "pins", "required", r.Lock != "")
		putIf(e, "lock", r.Lock, r.Lock != "")
		if m[name] = e; len(e) == 0 {
			m[name] = "allow"
		}
	}
	if len(m) == 0 {
		return map[string]any{"debian": "deny"}
	}
	return m
}
