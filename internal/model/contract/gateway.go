package contract

import (
	"net"
	"net/url"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Gateway says where waldo serve listens and who is let in. The zero value lets in the user that
// waldo runs as, over connections within this machine.
type Gateway struct {
	Lean    bool              // show search, call and code in place of every tool
	Listen  string            // "127.0.0.1:7676"
	URL     string            // of the MCP endpoint, as clients know it
	Origins []string          // of pages that may ask, besides those of waldo's own
	Tokens  map[string]string // name to the hash of a token
	OIDC    *Issuer
	Limits  GatewayLimits
}

// GatewayLimits bound the clients; 0 means waldo's own bound. All but those of tasks are of clients over HTTP.
type GatewayLimits struct{ Connections, Strangers, Sessions, SessionsEach, CallsEach, Tasks, TasksEach, TaskSeconds int }

// of returns the limit of a key.
func (l *GatewayLimits) of(key string) *int {
	return map[string]*int{"connections": &l.Connections, "strangers": &l.Strangers, "sessions": &l.Sessions,
		"sessions_each": &l.SessionsEach, "calls_each": &l.CallsEach,
		"tasks": &l.Tasks, "tasks_each": &l.TasksEach, "task_seconds": &l.TaskSeconds}[key]
}

// Issuer is who signs the tokens that let people in (OAuth 2.1).
type Issuer struct {
	Issuer string
	JWKS   string   // where its keys are; empty: as its own metadata says
	Scopes []string // each of which a token must have
}

var hashed = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (p *parser) gateway(f field) {
	at := map[string]*yaml.Node{}
	var o Gateway
	for _, g := range p.fields(f.val, inGateway) {
		at[g.name] = g.val
		switch g.name {
		case "listen":
			o.Listen = p.text(g)
			if _, port, err := net.SplitHostPort(o.Listen); o.Listen != "" && (err != nil || port == "") {
				p.fail(g.val, "value.address", `as in "127.0.0.1:7676"`, "not an address to listen on")
				o.Listen = ""
			}
		case "url":
			o.URL = p.address(g)
		case "lean":
			o.Lean = p.boolean(g)
		case "origins":
			o.Origins = p.origins(g)
		case "limits":
			for _, e := range p.fields(g.val, inDoor) {
				*o.Limits.of(e.name) = p.integer(e, 1, 1_000_000)
			}
		case "auth":
			p.entrance(g, &o)
		}
	}
	host, _, _ := net.SplitHostPort(o.Listen)
	switch open := o.Listen != "" && !loopback(host); {
	case open && len(o.Tokens) == 0 && o.OIDC == nil: // listen
		p.fail(at["listen"], "listen.open", "listen on 127.0.0.1, or give out a token: waldo token NAME", "listening beyond this machine needs auth")
	case open && o.URL == "":
		p.fail(at["listen"], "listen.name", "add url, as in https://waldo.example.com/mcp", "listening beyond this machine needs the name that clients use")
	case o.OIDC != nil && o.URL == "":
		p.fail(at["auth"], "listen.name", "add url, as in https://waldo.example.com/mcp", "a token of an issuer is for one address, which must be known")
	}
	p.cfg.Gateway = o
}

// entrance reads who is let in.
func (p *parser) entrance(f field, o *Gateway) {
	for _, g := range p.fields(f.val, inEntrance) {
		switch g.name {
		case "tokens":
			o.Tokens = map[string]string{}
			for _, e := range p.entries(g) {
				if !label(e.name) {
					p.fail(e.key, "value.name", "as in ci", "a token cannot be named %q", cut(e.name, 40))
				}
				if o.Tokens[e.name] = p.text(e); !hashed.MatchString(o.Tokens[e.name]) {
					p.fail(e.val, codeLiteral, "waldo token NAME makes a token and its hash", "this is not the hash of a token; a token itself must not stand here")
				}
			}
		case "oidc":
			o.OIDC = p.issuer(g)
		}
	}
}

func (p *parser) issuer(f field) *Issuer {
	var o Issuer
	for _, g := range p.fields(f.val, inIssuer) {
		switch g.name {
		case "issuer":
			o.Issuer = p.address(g)
		case "jwks":
			o.JWKS = p.address(g)
		case "scopes":
			o.Scopes = p.texts(g)
		}
	}
	if o.Issuer == "" && f.val.Kind == yaml.MappingNode {
		p.fail(f.key, "key.missing", "as in issuer: https://login.example.com", "oidc wants an issuer")
	}
	return &o
}

// origins reads a list of origins: a scheme and a host, and a port where it is another than usual.
func (p *parser) origins(f field) []string {
	list := p.texts(f)
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || s != u.Scheme+"://"+u.Host {
			p.fail(f.val, "value.url", "as in https://console.example.com", "%q is not the origin of a page", cut(s, 60))
		}
	}
	return list
}

func (g Gateway) normal() map[string]any {
	m := map[string]any{}
	putIf(m, "listen", g.Listen, g.Listen != "")
	putIf(m, "lean", true, g.Lean)
	putIf(m, "url", g.URL, g.URL != "")
	putIf(m, "origins", g.Origins, len(g.Origins) > 0)
	auth := map[string]any{}
	putIf(auth, "tokens", g.Tokens, len(g.Tokens) > 0)
	if o := g.OIDC; o != nil {
		oidc := map[string]any{"issuer": o.Issuer}
		putIf(oidc, "jwks", o.JWKS, o.JWKS != "")
		putIf(oidc, "scopes", o.Scopes, len(o.Scopes) > 0)
		auth["oidc"] = oidc
	}
	putIf(m, "auth", auth, len(auth) > 0)
	limits := map[string]any{}
	for _, k := range namesOf(inDoor) {
		putIf(limits, k, *g.Limits.of(k), *g.Limits.of(k) > 0)
	}
	putIf(m, "limits", limits, len(limits) > 0)
	return m
}
