package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
)

var secretEntry = &mapping[contract.Secret]{
	name: "secret", title: "a secret",
	doc: "A secret has exactly one of `from`, `command` and `environments`. [secrets.md](../secrets.md) lists " +
		"the places.",
	example: "secrets:\n  ticket_token: {from: \"env:TICKET_TOKEN\", refresh: 5m}\n",
	begin: func(p *parser, e field, s *contract.Secret) {
		p.user = "inject"
		if !secret.Name(e.Name) || contract.LooksSecret(e.Name) {
			p.Fail(e.Key, contract.CodeLiteral, "letters, digits, _, - and ., beginning with a letter",
				"this cannot be the name of a secret")
		}
	},
	keys: []key[contract.Secret]{
		{"from", custom(refShape,
			func(p *parser, f field, s *contract.Secret) { s.Spec.From = p.place(f) }),
			"none; a secret has from, command or environments", "Its place.", "internal/model/secret"},
		{"environments", leaf(outline.Shape{Name: "environments to secrets", Schema: outline.MapOf(refSchema)},
			(*parser).places,
			func(s *contract.Secret) *map[string]secret.Ref { return &s.In }),
			"none; a secret has from, command or environments",
			"Its place in each environment; it is absent in others.", "internal/model/secret"},
		{"command", command(func(s *contract.Secret) *[]string { return &s.Spec.Command }),
			"none; a secret has from, command or environments", "A program, run without a shell, that prints it.",
			"internal/model/secret"},
		covers(func(s *contract.Secret) *string { return &s.Trust }),
		{"timeout", duration(time.Minute, func(s *contract.Secret) *time.Duration { return &s.Spec.Timeout }),
			"10s", "How long the command may take, at most 1m.", "internal/model/secret"},
		{"refresh", duration(30*24*time.Hour, func(s *contract.Secret) *time.Duration { return &s.Spec.Refresh }),
			"5m for a command and for Vault, where its lease is not shorter; 1m for the keyring; a file when it changes",
			"How long a value is used before it is fetched again.", "internal/model/secret"},
		{"inject", pointer(inject, func(s *contract.Secret) **contract.Inject { return &s.Inject }),
			"none: it goes where it is used",
			"The one host that it belongs to: a sandbox gets a placeholder, and egress puts the secret into requests to " +
				"that host.",
			"internal/network/egress"},
		tenantsOf("those of the capabilities and servers that name it", "The tenants whose calls can use it.",
			func(s *contract.Secret) *[]string { return &s.Tenants }),
	},
	check: func(p *parser, e field, _ *contract.Secret, at map[string]field) {
		where := 0
		for _, k := range []string{"from", "command", "environments"} {
			if _, written := at[k]; written {
				where++
			}
		}
		if n := at["trust"].Val; n != nil && at["command"].Val == nil {
			p.Fail(n, "key.misplaced", "remove it", "trust is for a command")
		}
		if where != 1 && isMapping(e.Val) {
			p.Fail(e.Key, "key.missing", `as in from: "env:TOKEN"`, "a secret wants one of from, command and environments")
		}
	},
}

// covers is the key trust of a command that waldo runs outside of sandboxes.
func covers[T any](at func(*T) *string) key[T] {
	return key[T]{"trust", word(strictyaml.OneOf(contract.Uncovered), at),
		"none: a found waldo.yaml is refused, unless the command is a static executable",
		"uncovered: the command may load files that no digest of waldo trust covers.", "internal/app/trust"}
}

// ways are how a secret goes into a request; wants are the further keys of each.
var (
	ways  = strictyaml.OneOf("bearer", "basic", "header", "query", "sigv4", "postgres")
	wants = map[string][]string{
		"": {"methods", "paths"}, "bearer": {"methods", "paths"}, "basic": {"methods", "paths", "user"},
		"header": {"methods", "paths", "name"}, "query": {"methods", "paths", "name"},
		"sigv4":    {"methods", "paths", "key", "token", "region", "service"},
		"postgres": {"user", "database", "tls"},
	}
	free = []string{"token", "tls"} // may be left out
)

var inject = &mapping[contract.Inject]{
	name: "inject",
	doc:  "Selects the requests of a sandbox to which egress adds the secret. The sandbox holds a placeholder.",
	example: "secrets:\n  ticket_token:\n    from: \"env:TICKET_TOKEN\"\n" +
		"    inject: {host: api.example.com, methods: [GET], paths: [/v1/*], as: bearer}\n",
	begin: func(_ *parser, _ field, b *contract.Inject) { b.Port = 443 },
	keys: []key[contract.Inject]{
		{"host", custom(textShape, (*parser).injectHost),
			"", "The host, as in api.example.com or db.example.com:5433; without a port 443, with postgres 5432.",
			"internal/network/egress"},
		{"methods", leaf(textsShape, (*parser).methods, func(b *contract.Inject) *[]string { return &b.Methods }),
			"none; required unless as is postgres", "The methods of requests that get it, as in [GET, POST].",
			"internal/network/egress"},
		{"paths", leaf(textsShape, (*parser).paths, func(b *contract.Inject) *[]string { return &b.Paths }),
			"none; required unless as is postgres",
			"The paths of requests that get it, as in [/repos/*]; /* is every path.", "internal/network/egress"},
		{"as", word(ways, func(b *contract.Inject) *string { return &b.As }),
			"", "How it goes into a request, replacing any value of the sandbox; with postgres, it opens database sessions.",
			"internal/network/egress"},
		{"name", leaf(textShape, (*parser).plainName, func(b *contract.Inject) *string { return &b.Name }),
			"none; needed with header and query", "The header, or the parameter of the query.", "internal/network/egress"},
		{"user", leaf(textShape, (*parser).plainName, func(b *contract.Inject) *string { return &b.User }),
			"none; needed with basic and postgres", "The user that it is the password of.", "internal/network/egress"},
		{"database", leaf(textShape, (*parser).plainName, func(b *contract.Inject) *string { return &b.Database }),
			"none; needed with postgres", "The database, which is the only one that the sandbox enters.",
			"internal/network/egress"},
		{"tls", custom(boolShape,
			func(p *parser, f field, b *contract.Inject) { b.Plain = !p.Boolean(f) }),
			"true", "With postgres: whether the server must speak TLS.", "internal/network/egress"},
		{"key", ref(func(b *contract.Inject) *secret.Ref { return &b.Key }),
			"none; needed with sigv4", "With sigv4: the id of the key.", "internal/network/egress"},
		{"token", ref(func(b *contract.Inject) *secret.Ref { return &b.Token }),
			"none", "With sigv4: the session token of a temporary key.", "internal/network/egress"},
		{"region", label(func(b *contract.Inject) *string { return &b.Region }),
			"none; needed with sigv4", "With sigv4: the region, as in eu-central-1.", "internal/network/egress"},
		{"service", label(func(b *contract.Inject) *string { return &b.Service }),
			"none; needed with sigv4", "With sigv4: the service, as in s3.", "internal/network/egress"},
	},
	check: func(p *parser, f field, b *contract.Inject, at map[string]field) {
		if b.As == "postgres" && b.Port == 443 {
			b.Port = 5432
		}
		for _, k := range append([]string{"host", "as"}, wants[b.As]...) {
			if _, written := at[k]; !written && !slices.Contains(free, k) {
				p.Fail(f.Key, "key.missing", "as in {host: api.example.com, methods: [GET], paths: [/v1/*], as: bearer}",
					"inject needs %s", k)
			}
		}
		for k := range at {
			if k != "host" && k != "as" && b.As != "" && !slices.Contains(wants[b.As], k) {
				p.Fail(f.Key, "key.misplaced", "remove it", "%s means nothing with as: %s", k, b.As)
			}
		}
	},
}

// secret reads one entry of secrets.
func (p *parser) secret(e field) {
	s := contract.Secret{Name: e.Name, At: p.At(e.Key)}
	secretEntry.read(p, e, &s)
	p.cfg.Secrets[e.Name] = s
}

// chooseSecrets takes the places of this environment, when it is known which one it is.
func (p *parser) chooseSecrets() {
	for name, s := range p.cfg.Secrets {
		if s.In != nil {
			s.Spec.From = s.In[p.cfg.Environment]
			p.cfg.Secrets[name] = s
		}
	}
}

// place parses the place of a secret; the name of another secret is refused.
func (p *parser) place(f field) secret.Ref {
	ref := p.ref(f)
	if _, ok := ref.Place(); ref != "" && !ok {
		p.Fail(f.Val, "value.place", `as in "env:TOKEN" or "vault:secret/app#token"`,
			"%q requires the place of the secret", f.Name)
	}
	return ref
}

func (p *parser) places(f field) map[string]secret.Ref {
	var in map[string]secret.Ref
	for _, g := range p.Entries(f) {
		if !isLabel(g.Name) {
			p.Fail(g.Key, "value.name", "as in production", "an environment cannot be named %q", contract.Cut(g.Name, 40))
		}
		if in == nil {
			in = map[string]secret.Ref{}
		}
		in[g.Name] = p.place(g)
	}
	return in
}

func (p *parser) injectHost(g field, b *contract.Inject) {
	host := p.Text(g)
	if _, sound := contract.HostLine(host); host != "" && (!sound || strings.ContainsAny(host, " /*")) {
		p.Fail(g.Val, "value.host", "as in api.example.com", "a secret belongs to one host, and %q is not the name of one",
			contract.Cut(host, 40))
	}
	name, port, _ := strings.Cut(host, ":")
	b.Host = name
	if n, err := strconv.Atoi(port); err == nil {
		b.Port = n
	}
}

func (p *parser) methods(g field) []string {
	list := p.Texts(g)
	if slices.ContainsFunc(list, func(m string) bool { return strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" }) {
		p.Fail(g.Val, "value.unknown", "as in [GET, POST]", "methods are written in capital letters")
	}
	return list
}

func (p *parser) paths(g field) []string {
	list := p.Texts(g)
	if slices.ContainsFunc(list, func(s string) bool { return s != "" && hostrule.BadPath(s) != "" }) {
		p.Fail(g.Val, "value.path", "as in [/v1/*]", "write each path plainly, with a * at its end alone")
	}
	return list
}

// plainName reads a name that headers, queries and start-up messages carry as it is.
func (p *parser) plainName(g field) string {
	s := p.Text(g)
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(":;,&=", c) }) {
		p.Fail(g.Val, "value.name", "as in X-Api-Key", "%q cannot be %q", g.Name, contract.Cut(s, 40))
	}
	return s
}

// checkSecrets refuses a secret that a sandbox would get nothing of, and one revealed that it has not.
func (p *parser) checkSecrets(c *contract.Contract) {
	at := c.Keys["reveal"]
	for _, v := range c.Reveal {
		if _, ok := c.Secrets[v]; !ok {
			p.against(at, "reveal.unknown", "name a variable of secrets",
				"reveal names "+contract.Cut(v, 40)+", which secrets does not")
		}
	}
	if c.Resolve(representative(c.Pattern), p.cfg).Transport != contract.SandboxedExec {
		return
	}
	for v := range c.Secrets {
		switch {
		case !secret.Variable(v):
			p.against(c.Keys["secrets"], "secret.variable", "write {VARIABLE: NAME}",
				"a sandbox gets a secret as a variable, and "+contract.Cut(v, 40)+" cannot name one")
		case slices.Contains(c.Reveal, v):
		case p.cfg.Secrets[string(c.Secrets[v])].Inject != nil:
			p.checkInjected(*p.cfg.Secrets[string(c.Secrets[v])].Inject, v, c.Network, c.Keys["secrets"])
		default:
			p.against(c.Keys["secrets"], "secret.kept",
				"add inject: {host: HOST, as: bearer} to send it to one host without exposing it, or reveal: ["+
					contract.Cut(v, 40)+"] to expose it",
				"the secret "+contract.Cut(v, 40)+" would not be usable in the sandbox")
		}
	}
}

// checkServerSecrets refuses an injected secret for a server without a sandbox, or whose sandbox cannot reach the
// host.
func (p *parser) checkServerSecrets(s contract.Server) {
	for v, ref := range s.Secrets {
		switch b := p.cfg.Secrets[string(ref)].Inject; {
		case b == nil:
		case s.Placement == "outside":
			p.against(s.At, "secret.host", "write placement: sandbox",
				"the secret "+contract.Cut(v, 40)+" is added by the egress of a sandbox, and server "+
					contract.Cut(s.Name, 40)+" runs outside")
		default:
			p.checkInjected(*b, v, s.Network, s.At)
		}
	}
}

// checkInjected refuses a secret whose host the sandbox cannot reach.
func (p *parser) checkInjected(b contract.Inject, variable string, n contract.Network, at contract.Position) {
	lines := n.Allow
	if n.Internal {
		lines = p.cfg.Internal
	}
	for _, r := range n.Packages {
		lines = append(slices.Clone(lines), contract.RegistryLine(r.URL))
	}
	if b.Host != "" && !slices.ContainsFunc(lines, func(l string) bool { return reaches(l, b.Host, b.Port) }) {
		p.against(at, "secret.host", "name the host under network: {allow: [...]}",
			fmt.Sprintf("the secret %s belongs to %s:%d, which network does not allow",
				contract.Cut(variable, 40), b.Host, b.Port))
	}
}

// reaches reports whether a line of hosts is for a host and port.
func reaches(line, host string, port int) bool {
	l, sound := contract.HostLine(line)
	return sound && (int(l.Port) == port || l.Port == 0 && port == 443) && l.Host.Match(host)
}

// hasSource reports whether a secret has a source: a place, or a name that is defined here.
func hasSource(cfg *contract.Config, ref secret.Ref) bool {
	if _, ok := ref.Place(); ok {
		return true
	}
	s, ok := cfg.Secrets[string(ref)]
	return ok && (s.Spec.From != "" || len(s.Spec.Command) > 0)
}
