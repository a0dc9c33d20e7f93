package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
)

// Inject selects the requests of a sandbox to which egress adds a secret. The sandbox holds a placeholder.
type Inject struct {
	Host            string   // a name
	Port            int      // never 0
	Methods, Paths  []string // never empty but with postgres
	As              string   // bearer, basic, header, query, sigv4 or postgres
	Name            string   // of the header or the parameter
	User, Database  string   // of basic and postgres
	Plain           bool     // with postgres: the server need not speak TLS
	Key, Token      secret.Ref
	Region, Service string
}

// wants are the further keys of each way in.
var wants = map[string][]string{
	"": {"methods", "paths"}, "bearer": {"methods", "paths"}, "basic": {"methods", "paths", "user"}, "header": {"methods", "paths", "name"}, "query": {"methods", "paths", "name"},
	"sigv4": {"methods", "paths", "key", "token", "region", "service"}, "postgres": {"user", "database", "tls"},
}

// free are those that may be left out.
var free = []string{"token", "tls"}

func (p *parser) inject(f field) *Inject {
	b := Inject{Port: 443}
	at := map[string]bool{}
	for _, g := range p.fields(f.val, inInject) {
		at[g.name] = true
		p.injectKey(&b, g)
	}
	if b.As == "postgres" && b.Port == 443 {
		b.Port = 5432
	}
	for _, k := range append([]string{"host", "as"}, wants[b.As]...) {
		if !at[k] && !slices.Contains(free, k) {
			p.fail(f.key, "key.missing", "as in {host: api.example.com, methods: [GET], paths: [/v1/*], as: bearer}", "inject needs %s", k)
		}
	}
	for k := range at {
		if k != "host" && k != "as" && b.As != "" && !slices.Contains(wants[b.As], k) {
			p.fail(f.key, "key.misplaced", "remove it", "%s means nothing with as: %s", k, b.As)
		}
	}
	return &b
}

func (p *parser) injectKey(b *Inject, g field) {
	switch g.name {
	case "host":
		host := p.text(g)
		if _, sound := hostLine(host); host != "" && (!sound || strings.ContainsAny(host, " /*")) {
			p.fail(g.val, "value.host", "as in api.example.com", "a secret belongs to one host, and %q is not the name of one", cut(host, 40))
		}
		name, port, _ := strings.Cut(host, ":")
		b.Host = name
		if n, err := strconv.Atoi(port); err == nil {
			b.Port = n
		}
	case "methods":
		if b.Methods = p.texts(g); slices.ContainsFunc(b.Methods, func(m string) bool { return strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" }) {
			p.fail(g.val, "value.unknown", "as in [GET, POST]", "methods are written in capital letters")
		}
	case "paths":
		if b.Paths = p.texts(g); slices.ContainsFunc(b.Paths, func(s string) bool { return s != "" && hostrule.BadPath(s) != "" }) {
			p.fail(g.val, "value.path", "as in [/v1/*]", "write each path plainly, with a * at its end alone")
		}
	case "as":
		b.As = p.word(g, inInject)
	case "name":
		b.Name = p.plainName(g)
	case "user":
		b.User = p.plainName(g)
	case "database":
		b.Database = p.plainName(g)
	case "tls":
		b.Plain = !p.boolean(g)
	case "key":
		b.Key = p.ref(g)
		p.use(b.Key, g.val, "inject")
	case "token":
		b.Token = p.ref(g)
		p.use(b.Token, g.val, "inject")
	case "region":
		b.Region = p.label(g)
	case "service":
		b.Service = p.label(g)
	}
}

// plainName reads a name that headers, queries and start-up messages carry as it is.
func (p *parser) plainName(g field) string {
	s := p.text(g)
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(":;,&=", c) }) {
		p.fail(g.val, "value.name", "as in X-Api-Key", "%q cannot be %q", g.name, cut(s, 40))
	}
	return s
}

// checkServerSecrets refuses an injected secret for a server without a sandbox, or whose sandbox cannot reach the
// host.
func (p *parser) checkServerSecrets(s Server) {
	for v, ref := range s.Secrets {
		switch b := p.cfg.Secrets[string(ref)].Inject; {
		case b == nil:
		case s.Placement == "outside":
			p.against(s.At, "secret.host", "write placement: sandbox", "the secret "+cut(v, 40)+" is added by the egress of a sandbox, and server "+cut(s.Name, 40)+" runs outside")
		default:
			p.checkBroker(*b, v, s.Network, s.At)
		}
	}
}

// checkBroker refuses a secret whose host the sandbox cannot reach.
func (p *parser) checkBroker(b Inject, variable string, n Network, at Position) {
	lines := n.Allow
	if n.Internal {
		lines = p.cfg.Internal
	}
	for _, r := range n.Packages {
		lines = append(slices.Clone(lines), RegistryLine(r.URL))
	}
	if b.Host != "" && !slices.ContainsFunc(lines, func(l string) bool { return reaches(l, b.Host, b.Port) }) {
		p.against(at, "secret.host", "name the host under network: {allow: [...]}", fmt.Sprintf("the secret %s belongs to %s:%d, which network does not allow", cut(variable, 40), b.Host, b.Port))
	}
}

// reaches reports whether a line of hosts is for a host and port.
func reaches(line, host string, port int) bool {
	l, sound := hostLine(line)
	return sound && (int(l.Port) == port || l.Port == 0 && port == 443) && l.Host.Match(host)
}

func (b Inject) normal() map[string]any {
	m := map[string]any{"host": fmt.Sprintf("%s:%d", b.Host, b.Port), "as": b.As}
	putIf(m, "methods", b.Methods, b.Methods != nil)
	putIf(m, "paths", b.Paths, b.Paths != nil)
	putIf(m, "tls", false, b.Plain)
	for k, v := range map[string]string{"name": b.Name, "user": b.User, "database": b.Database, "key": string(b.Key), "token": string(b.Token), "region": b.Region, "service": b.Service} {
		putIf(m, k, v, v != "")
	}
	return m
}
