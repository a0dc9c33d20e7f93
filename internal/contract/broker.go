package contract

import (
	"slices"
	"strings"

	"waldo/internal/secret"
)

// Broker says to which requests of a box the egress adds a secret. The box has a placeholder.
type Broker struct {
	Host            string   // or host:port; over TLS alone
	Methods, Paths  []string // never empty
	As              string   // bearer, basic, header, query or sigv4
	Name            string   // of the header or the parameter, or the user of basic
	Key, Token      secret.Ref
	Region, Service string
}

// wants are the further keys of each way into a request.
var wants = map[string][]string{"bearer": nil, "basic": {"name"}, "header": {"name"}, "query": {"name"}, "sigv4": {"key", "token", "region", "service"}}

func (p *parser) broker(f field) *Broker {
	var b Broker
	at := map[string]bool{}
	for _, g := range p.fields(f.val, inBroker) {
		at[g.name] = true
		switch g.name {
		case "host":
			if b.Host = p.text(g); b.Host != "" && (!hostLine(b.Host) || strings.ContainsAny(b.Host, " /*")) {
				p.fail(g.val, "value.host", "as in api.example.com", "a secret belongs to one host, and %q is not the name of one", cut(b.Host, 40))
			}
		case "methods":
			if b.Methods = p.texts(g); slices.ContainsFunc(b.Methods, func(m string) bool { return strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" }) {
				p.fail(g.val, "value.unknown", "as in [GET, POST]", "methods are written in capital letters")
			}
		case "paths":
			if b.Paths = p.texts(g); slices.ContainsFunc(b.Paths, func(s string) bool { return s != "" && (s[0] != '/' || !hostLine("a.example"+s)) }) {
				p.fail(g.val, "value.path", "as in [/v1/*]", "write each path plainly, with a * at its end alone")
			}
		case "as":
			b.As = p.word(g, inBroker)
		case "name":
			if b.Name = p.text(g); strings.ContainsFunc(b.Name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(":;,&=", c) }) {
				p.fail(g.val, "value.name", "as in X-Api-Key", "%q cannot name a header, a parameter or a user", cut(b.Name, 40))
			}
		case "key":
			b.Key = p.ref(g)
			p.use(b.Key, g.val, "broker")
		case "token":
			b.Token = p.ref(g)
			p.use(b.Token, g.val, "broker")
		case "region":
			b.Region = p.label(g)
		case "service":
			b.Service = p.label(g)
		}
	}
	for _, k := range append([]string{"host", "methods", "paths", "as"}, wants[b.As]...) {
		if !at[k] && k != "token" {
			p.fail(f.key, "key.missing", "as in {host: api.example.com, methods: [GET], paths: [/v1/*], as: bearer}", "broker needs %s", k)
		}
	}
	for _, k := range []string{"name", "key", "token", "region", "service"} {
		if at[k] && b.As != "" && !slices.Contains(wants[b.As], k) {
			p.fail(f.key, "key.misplaced", "remove it", "%s means nothing with as: %s", k, b.As)
		}
	}
	return &b
}

// checkServerSecrets refuses a secret of a host for a server whose box could not reach it, or that has no box.
func (p *parser) checkServerSecrets(s Server) {
	for v, ref := range s.Secrets {
		switch b := p.cfg.Secrets[string(ref)].Broker; {
		case b == nil:
		case s.Placement == "outside":
			p.against(s.At, "secret.host", "write placement: sandbox", "the secret "+cut(v, 40)+" is added by the egress of a box, and server "+cut(s.Name, 40)+" runs outside")
		default:
			p.checkBroker(*b, v, s.Network, s.At)
		}
	}
}

// checkBroker refuses a secret whose host the box could not reach.
func (p *parser) checkBroker(b Broker, variable string, n Network, at Position) {
	lines := n.Allow
	if n.Internal {
		lines = p.cfg.Internal
	}
	if b.Host != "" && !slices.ContainsFunc(lines, func(l string) bool { return reaches(l, b.Host) }) {
		p.against(at, "secret.host", "name the host under network: {allow: [...]}", "the secret "+cut(variable, 40)+" belongs to "+b.Host+", which network does not allow")
	}
}

// reaches reports whether a line of hosts is for a host, which is written with its port unless it is 443.
func reaches(line, host string) bool {
	m := hostParts.FindStringSubmatch(line)
	name, port, _ := strings.Cut(host, ":")
	if m == nil || m[3] != "" && m[3] != port && (m[3] != "443" || port != "") || m[3] == "" && port != "" && port != "443" {
		return false
	}
	below, wide := strings.CutPrefix(m[2], "*")
	return m[2] == name || wide && strings.HasSuffix(name, below)
}

func (b Broker) normal() map[string]any {
	m := map[string]any{"host": b.Host, "methods": b.Methods, "paths": b.Paths, "as": b.As}
	for k, v := range map[string]string{"name": b.Name, "key": string(b.Key), "token": string(b.Token), "region": b.Region, "service": b.Service} {
		putIf(m, k, v, v != "")
	}
	return m
}
