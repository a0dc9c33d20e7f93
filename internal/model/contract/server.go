package contract

import (
	"net/textproto"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"waldo/internal/model/secret"
)

// Auth is how waldo shows itself to a server at a url. The zero value shows nothing.
type Auth struct {
	Bearer  secret.Ref            // sent as a bearer token
	Headers map[string]secret.Ref // sent as they are; by canonical name
	OAuth   *OAuth
}

// OAuth says how a token is had from the server that issues them.
type OAuth struct {
	Grant    string     // authorization_code, which needs waldo login, or client_credentials
	ClientID string     // as registered with the issuer; empty: waldo registers itself where that is offered
	Secret   secret.Ref // of the client; empty: a public client
	Key      secret.Ref // of the client: its private key, for private_key_jwt; can be empty
	DPoP     string     // offered, required or never
	Metadata string     // the https address of a client metadata document; can be empty
	Scopes   []string   // empty: those that the server asks for
	Issuer   string     // the only issuer that is taken; empty: the one that the server names first
}

func (p *parser) auth(f field, server string) Auth {
	var a Auth
	at := map[string]*yaml.Node{}
	for _, g := range p.fields(f.val, inAuth) {
		at[g.name] = g.key
		switch g.name {
		case "bearer":
			a.Bearer = p.ref(g)
			p.use(a.Bearer, g.val, "server "+server)
		case "headers":
			a.Headers = p.headers(g, server)
		case "oauth":
			a.OAuth = p.oauth(g, server)
		}
	}
	if at["bearer"] != nil && at["oauth"] != nil {
		p.fail(at["bearer"], "auth.twice", "keep one", "a server is shown either a bearer token or one of oauth")
	}
	return a
}

// headers reads a mapping of header to secret. Those that HTTP and MCP write themselves are refused.
func (p *parser) headers(f field, server string) map[string]secret.Ref {
	out := map[string]secret.Ref{}
	for _, e := range p.entries(f) {
		name := textproto.CanonicalMIMEHeaderKey(e.name)
		switch {
		case strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || name == "" || len(name) > 128:
			p.fail(e.key, "value.name", "as in X-Api-Key", "%q is not the name of a header", cut(e.name, 40))
			continue
		case own[name] || strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "Sec-"):
			p.fail(e.key, "value.name", "use bearer for Authorization", "the header %s is written by waldo itself", cut(name, 40))
			continue
		}
		ref := p.ref(e)
		p.use(ref, e.val, "server "+server)
		out[name] = ref
	}
	return out
}

// own are the headers that belong to HTTP and MCP.
var own = map[string]bool{"Authorization": true, "Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true,
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Transfer-Encoding": true, "Te": true, "Trailer": true, "Upgrade": true,
	"Cookie": true, "Origin": true, "Last-Event-Id": true, "Expect": true}

func (p *parser) oauth(f field, server string) *OAuth {
	o := &OAuth{Grant: "authorization_code", DPoP: "offered"}
	at := map[string]*yaml.Node{}
	for _, g := range p.fields(f.val, inOAuth) {
		at[g.name] = g.val
		switch g.name {
		case "grant":
			o.Grant = p.word(g, inOAuth)
		case "client_id":
			o.ClientID = p.text(g)
		case "client_secret":
			o.Secret = p.ref(g)
			p.use(o.Secret, g.val, "server "+server)
		case "client_key":
			o.Key = p.ref(g)
			p.use(o.Key, g.val, "server "+server)
		case "dpop":
			o.DPoP = p.word(g, inOAuth)
		case "client_metadata":
			o.Metadata = p.text(g)
			if u, err := url.Parse(o.Metadata); err != nil || u.Scheme != "https" || u.Host == "" || len(u.Path) < 2 {
				p.fail(g.val, "value.url", "as in https://example.com/waldo.json", "not the address of a client metadata document")
			}
		case "scopes":
			o.Scopes = p.texts(g)
		case "issuer":
			o.Issuer = p.address(g)
		}
	}
	switch {
	case at["client_secret"] != nil && at["client_key"] != nil:
		p.fail(at["client_key"], "auth.twice", "keep one", "a client is shown either by a secret or by a key")
	case o.Grant == "client_credentials" && (at["client_id"] == nil || at["client_secret"] == nil && at["client_key"] == nil):
		p.fail(f.key, "key.missing", "write client_id and client_secret or client_key", "client_credentials needs a client that is registered")
	case (at["client_secret"] != nil || at["client_key"] != nil) && at["client_id"] == nil:
		p.fail(f.key, "key.missing", "write client_id", "a client_secret or client_key belongs to a client_id")
	}
	return o
}

func (a Auth) normal() map[string]any {
	m := map[string]any{}
	putIf(m, "bearer", string(a.Bearer), a.Bearer != "")
	putIf(m, "headers", refTexts(a.Headers), len(a.Headers) > 0)
	if o := a.OAuth; o != nil {
		n := map[string]any{"grant": o.Grant}
		putIf(n, "client_id", o.ClientID, o.ClientID != "")
		putIf(n, "client_secret", string(o.Secret), o.Secret != "")
		putIf(n, "client_key", string(o.Key), o.Key != "")
		putIf(n, "dpop", o.DPoP, o.DPoP != "offered")
		putIf(n, "client_metadata", o.Metadata, o.Metadata != "")
		putIf(n, "scopes", o.Scopes, len(o.Scopes) > 0)
		putIf(n, "issuer", o.Issuer, o.Issuer != "")
		m["oauth"] = n
	}
	return m
}
