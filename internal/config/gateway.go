package config

import (
	"net"
	"net/url"

	"waldo/internal/config/outline"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
)

var gateway = &mapping[contract.Gateway]{
	name:    "gateway",
	doc:     "[http.md](../http.md) describes waldo over HTTP.",
	example: "gateway: {listen: \"127.0.0.1:7676\", lean: true}\n",
	keys: []key[contract.Gateway]{
		{"listen", leaf(textShape, (*parser).listen, func(g *contract.Gateway) *string { return &g.Listen }),
			"127.0.0.1:7676",
			"The address on which waldo serve listens unless it serves standard input; beyond this machine only with auth " +
				"and url.",
			"internal/frontend/mcpserver"},
		{"lean", boolean(func(g *contract.Gateway) *bool { return &g.Lean }),
			"false", "Show three tools in place of all: search_tools, call_tool and run_code.", "internal/frontend/mcpserver"},
		{"marks", boolean(func(g *contract.Gateway) *bool { return &g.Marks }),
			"false", "Put what a server, a page or a program wrote between two marks that it cannot forge, in the text that " +
				"a model reads.", "internal/frontend/mcpserver"},
		{"url", address(func(g *contract.Gateway) *string { return &g.URL }),
			"none: clients on this machine alone",
			"The public URL of the MCP endpoint: requests need its host in Host, and an issuer's tokens need it as audience.",
			"internal/frontend/mcpserver"},
		{"origins", leaf(textsShape, (*parser).origins, func(g *contract.Gateway) *[]string { return &g.Origins }),
			"waldo's own", "Origins of web pages that may ask, as in https://console.example.com.",
			"internal/frontend/mcpserver"},
		{"auth", nested(gatewayAuth, func(g *contract.Gateway) *contract.Gateway { return g }),
			"the user that waldo runs as, on this machine", "Who may connect over HTTP.", "internal/frontend/mcpserver"},
		{"limits", nested(gatewayLimits, func(g *contract.Gateway) *contract.GatewayLimits { return &g.Limits }),
			"as below", "Limits of clients.", "internal/frontend/mcpserver"},
		{"console", nested(consoleRoles, func(g *contract.Gateway) *contract.ConsoleRoles { return &g.Console }),
			"none", "The principals that can use the console's API, by role.", "internal/feature/console/site"},
	},
	check: func(p *parser, _ field, o *contract.Gateway, at map[string]field) {
		host, _, _ := net.SplitHostPort(o.Listen)
		if o.Listen != "" && !hostrule.Loopback(host) {
			p.openAt = at["listen"].Val
		}
		if o.OIDC != nil && o.URL == "" {
			p.Fail(at["auth"].Val, "listen.name", "add url, as in https://waldo.example.com/mcp",
				"a token of an issuer is for one address, which must be known")
		}
	},
}

var gatewayAuth = &mapping[contract.Gateway]{
	name: "gateway.auth",
	keys: []key[contract.Gateway]{
		{"tokens", leaf(outline.Shape{Name: "names to hashes", Schema: outline.MapOf(textSchema)}, (*parser).tokens, func(g *contract.Gateway) *map[string]string { return &g.Tokens }),
			"none", "Name to the hash of a token, both from waldo token.", "internal/frontend/mcpserver"},
		{"oidc", pointer(issuer, func(g *contract.Gateway) **contract.Issuer { return &g.OIDC }),
			"none", "The issuer whose signed tokens are accepted.", "internal/frontend/mcpserver"},
	},
}

var issuer = &mapping[contract.Issuer]{
	name: "gateway.auth.oidc",
	example: "gateway:\n  listen: \"0.0.0.0:7676\"\n  url: https://waldo.example.com/mcp\n" +
		"  auth: {oidc: {issuer: https://login.example.com, scopes: [waldo]}}\n",
	keys: []key[contract.Issuer]{
		{"issuer", address(func(o *contract.Issuer) *string { return &o.Issuer }),
			"", "The https address of the issuer, to the letter.", "internal/frontend/mcpserver"},
		{"jwks", address(func(o *contract.Issuer) *string { return &o.JWKS }),
			"the address in the issuer's metadata", "The address of the issuer's keys.", "internal/frontend/mcpserver"},
		{"scopes", texts(func(o *contract.Issuer) *[]string { return &o.Scopes }),
			"none", "Scopes that a token must have, every one.", "internal/frontend/mcpserver"},
	},
	check: func(p *parser, f field, o *contract.Issuer, _ map[string]field) {
		if o.Issuer == "" && isMapping(f.Val) {
			p.Fail(f.Key, "key.missing", "as in issuer: https://login.example.com", "oidc wants an issuer")
		}
	},
}

var consoleRoles = &mapping[contract.ConsoleRoles]{
	name:    "gateway.console",
	doc:     "[console.md](../console.md) describes the console and its API.",
	example: "gateway:\n  console: {viewer: [\"token:dashboard\"], operator: [\"token:ops\"]}\n",
	keys: []key[contract.ConsoleRoles]{
		{"viewer", texts(func(r *contract.ConsoleRoles) *[]string { return &r.Viewer }),
			"none", "Principals that can look, as in token:dashboard.", "internal/feature/console/site"},
		{"approver", texts(func(r *contract.ConsoleRoles) *[]string { return &r.Approver }),
			"none", "Principals that can also hand in answers, each signed with a passkey.", "internal/feature/console/site"},
		{"operator", texts(func(r *contract.ConsoleRoles) *[]string { return &r.Operator }),
			"none", "Principals that can also stop agents and pause sandboxes.", "internal/feature/console/site"},
		{"oidc", pointer(consoleLogin, func(r *contract.ConsoleRoles) **contract.ConsoleLogin { return &r.OIDC }),
			"none", "The issuer whose people can log in to the console.", "internal/feature/console/site/oidclogin"},
	},
}

const byLogin = "internal/feature/console/site/oidclogin"

var consoleLogin = &mapping[contract.ConsoleLogin]{
	name: "gateway.console.oidc",
	example: "gateway:\n  console:\n    oidc: {issuer: https://login.example.com, client_id: waldo, claim: groups, " +
		"operator: [ops]}\n",
	keys: []key[contract.ConsoleLogin]{
		{"issuer", address(func(o *contract.ConsoleLogin) *string { return &o.Issuer }),
			"", "The https address of the issuer, to the letter.", byLogin},
		{"client_id", text(func(o *contract.ConsoleLogin) *string { return &o.ClientID }),
			"", "The console's name at the issuer.", byLogin},
		{"client_secret", ref(func(o *contract.ConsoleLogin) *secret.Ref { return &o.Secret }),
			"none: a public client", "The secret of the client.", byLogin},
		{"scopes", texts(func(o *contract.ConsoleLogin) *[]string { return &o.Scopes }),
			"none", "Scopes to ask for besides openid.", byLogin},
		{"claim", or("roles", text(func(o *contract.ConsoleLogin) *string { return &o.Claim })),
			"", "The claim of the ID token that gives a role: a text, or a list of texts.", byLogin},
		{"viewer", texts(func(o *contract.ConsoleLogin) *[]string { return &o.Viewer }),
			"none", "Values of the claim for this role.", byLogin},
		{"approver", texts(func(o *contract.ConsoleLogin) *[]string { return &o.Approver }),
			"none", "Values of the claim for this role.", byLogin},
		{"operator", texts(func(o *contract.ConsoleLogin) *[]string { return &o.Operator }),
			"none", "Values of the claim for this role.", byLogin},
	},
	begin: func(p *parser, _ field, _ *contract.ConsoleLogin) { p.user = "gateway.console" },
	check: func(p *parser, f field, o *contract.ConsoleLogin, _ map[string]field) {
		if isMapping(f.Val) && (o.Issuer == "" || o.ClientID == "" || len(o.Viewer)+len(o.Approver)+len(o.Operator) == 0) {
			p.Fail(f.Key, "key.missing", "as in {issuer: https://login.example.com, client_id: waldo, operator: [ops]}",
				"a login by oidc wants issuer, client_id and the values of at least one role")
		}
	},
}

var gatewayLimits = &mapping[contract.GatewayLimits]{
	name: "gateway.limits",
	keys: []key[contract.GatewayLimits]{
		{"connections", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.Connections }),
			"4096, and at most half of the files that waldo may have open",
			"Connections at once of authenticated clients; one principal has half of them at most.",
			"internal/frontend/mcpserver"},
		{"strangers", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.Strangers }),
			"256",
			"Connections at once of unauthenticated clients; one address of another machine has a quarter of them at most.",
			"internal/frontend/mcpserver"},
		{"sessions", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.Sessions }),
			"4000", "Legacy sessions of all clients.", "internal/frontend/mcpserver"},
		{"sessions_each", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.SessionsEach }),
			"1000", "Legacy sessions of one principal.", "internal/frontend/mcpserver"},
		{"calls_each", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.CallsEach }),
			"1000", "Requests that are being answered for one principal.", "internal/frontend/mcpserver"},
		{"tasks", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.Tasks }),
			"1000", "Tasks of all clients, over any transport.", "internal/frontend/mcpserver/tasks"},
		{"tasks_each", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.TasksEach }),
			"100", "Tasks of one principal; an ended one whose result was fetched is dropped first.",
			"internal/frontend/mcpserver/tasks"},
		{"task_seconds", whole(1, 1_000_000, func(l *contract.GatewayLimits) *int { return &l.TaskSeconds }),
			"3600", "How long a task and its result exist at most; a client can ask for less.",
			"internal/frontend/mcpserver/tasks"},
	},
}

func (p *parser) listen(f field) string {
	s := p.Text(f)
	if _, port, err := net.SplitHostPort(s); s != "" && (err != nil || port == "") {
		p.Fail(f.Val, "value.address", `as in "127.0.0.1:7676"`, "not an address to listen on")
		return ""
	}
	return s
}

// tokens reads who is let in with a token: a name, and the hash of the token.
func (p *parser) tokens(f field) map[string]string {
	out := map[string]string{}
	for _, e := range p.Entries(f) {
		if !isLabel(e.Name) {
			p.Fail(e.Key, "value.name", "as in ci", "a token cannot be named %q", contract.Cut(e.Name, 40))
		}
		if out[e.Name] = p.Text(e); !hash().MatchString(out[e.Name]) {
			p.Fail(e.Val, contract.CodeLiteral, "waldo token NAME makes a token and its hash",
				"this is not the hash of a token; a token itself must not stand here")
		}
	}
	return out
}

// origins reads a list of origins: a scheme and a host, and a port where it is another than usual.
func (p *parser) origins(f field) []string {
	list := p.Texts(f)
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || s != u.Scheme+"://"+u.Host {
			p.Fail(f.Val, "value.url", "as in https://console.example.com", "%q is not the origin of a page",
				contract.Cut(s, 60))
		}
	}
	return list
}
