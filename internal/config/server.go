package config

import (
	"net/textproto"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/secret"
)

var server = &mapping[contract.Server]{
	name: "server", title: "a server",
	doc: "An upstream MCP server. A token stands here only by reference, as in `env:GITHUB_TOKEN`, or by the name of a\n" +
		"secret. [servers.md](../servers.md) describes servers.",
	example: "servers:\n  github:\n    command: [github-mcp-server, stdio]\n    secrets: {GITHUB_TOKEN: " +
		"\"env:GITHUB_TOKEN_READ\"}\n    network: {allow: [api.github.com]}\n",
	begin: func(p *parser, e field, s *contract.Server) {
		p.user = "server " + e.Name
		if !isLabel(e.Name) || strings.Contains(e.Name, "__") {
			p.Fail(e.Key, "value.name", "letters, digits, - and _, beginning with a letter, without \"__\"",
				"a server cannot be named %q", contract.Cut(e.Name, 40))
		}
		if _, twice := p.cfg.Servers[e.Name]; twice {
			p.Fail(e.Key, "server.twice", "give one another name", "a server and a peer are both named %q",
				contract.Cut(e.Name, 40))
		}
	},
	keys: []key[contract.Server]{
		{"command", custom(textsShape,
			func(p *parser, f field, s *contract.Server) { s.Command, s.CommandAt = p.Command(f), p.At(f.Val) }),
			"none; a server has a command or a url", "The program to start and its arguments.", "internal/executor/upstream"},
		{"url", address(func(s *contract.Server) *string { return &s.URL }),
			"none; a server has a command or a url",
			"The address of a server that runs elsewhere: https, or http on this machine.", "internal/network/mcphttp"},
		{"placement", word(strictyaml.OneOf("sandbox", "workspace", "outside"),
			func(s *contract.Server) *string { return &s.Placement }), "sandbox for a command, outside for a url",
			"The place where the server runs; with workspace each session has one of its own, which shares the files of its " +
				"workspace.",
			"internal/executor/upstream"},
		{"isolation", word(strictyaml.OneOf("auto", "namespace", "gvisor"),
			func(s *contract.Server) *string { return &s.Isolation }), "namespace",
			"How strong the server's sandbox is; auto: gvisor where a capability of the server has the class high_risk, " +
				"otherwise namespace.", "internal/executor/launch"},
		covers(func(s *contract.Server) *string { return &s.Trust }),
		{"network",
			reachable(strictyaml.OneOf("denied", "none"),
				func(s *contract.Server) *contract.Network { return &s.Network }),
			"denied", "The hosts that the server's sandbox may reach.", "internal/network/egress"},
		{"secrets", refs(func(s *contract.Server) *map[string]secret.Ref { return &s.Secrets }),
			"none", "Environment variables of the server that hold secrets.", "internal/executor/upstream"},
		{"env", pairs(func(s *contract.Server) *map[string]string { return &s.Env }),
			"none", "Other environment variables of the server.", "internal/executor/upstream"},
		{"mounts", custom(mounts.shape(), (*parser).mounts),
			"none", "This machine's files that the server sees.", "internal/executor/upstream"},
		{"data", label(func(s *contract.Server) *string { return &s.Data }),
			"none", "The name of a persistent folder: the server finds it at /data, which is its HOME.",
			"internal/executor/upstream"},
		{"idle_timeout", or("10m", duration(24*time.Hour, func(s *contract.Server) *time.Duration { return &s.IdleTimeout })),
			"", "How long an idle server keeps running.", "internal/executor/upstream"},
		{"per_session", boolean(func(s *contract.Server) *bool { return &s.PerSession }),
			"false: all sessions share it", "Whether each session has one of its own, which ends with it.",
			"internal/executor/upstream"},
		{"limits", nested(serverLimits, func(s *contract.Server) *contract.Limits { return &s.Limits }),
			"as below", "Limits of the server's sandbox.", "internal/sandbox"},
		{"names", custom(wordShape(nameForms),
			func(p *parser, f field, s *contract.Server) { s.Plain = p.Word(f, nameForms) == "plain" }),
			"prefixed", "Whether its tools, prompts and resources are shown under its name; plain, for one server alone, " +
				"shows them as the server names them.",
			"internal/frontend/mcpserver/catalog"},
		{"server_requests", nested(serverRequests, func(s *contract.Server) *contract.Asks { return &s.Asks }),
			"none: every request of the server is refused",
			"Requests that the server may send to the agent's host during a call.", "internal/executor/upstream"},
		{"auth", nested(auth, func(s *contract.Server) *contract.Auth { return &s.Auth }),
			"none", "How waldo authenticates to the server at a url.", "internal/network/mcphttp"},
		tenantsOf("those of the capabilities that name it", "The tenants that its tools can serve.",
			func(s *contract.Server) *[]string { return &s.Tenants }),
	},
	check: (*parser).placed,
}

var peer = &mapping[contract.Server]{
	name: "peer", title: "a peer",
	doc:     "An agent of A2A 1.0 or 0.3. [a2a.md](../a2a.md) describes peers.",
	example: "peers:\n  billing: {url: 'https://billing.example.com', auth: {bearer: \"env:BILLING_TOKEN\"}}\n",
	begin: func(p *parser, e field, s *contract.Server) {
		server.begin(p, e, s)
		s.Peer, s.Placement = true, "outside"
	},
	keys: []key[contract.Server]{
		{"url", address(func(s *contract.Server) *string { return &s.URL }), "",
			"The address of the agent, whose card is below it in /.well-known: https, or http on this machine.",
			"internal/network/a2apeer"},
		{"card", text(func(s *contract.Server) *string { return &s.CardKey }), "any key: waldo.lock pins the card",
			"The thumbprint of the key that has to sign the card (RFC 7638), in base64url.", "internal/network/a2apeer"},
		{"auth", nested(auth, func(s *contract.Server) *contract.Auth { return &s.Auth }),
			"none", "How waldo authenticates to the agent.", "internal/network/mcphttp"},
		tenantsOf("those of the capabilities that name it", "The tenants that it can serve.",
			func(s *contract.Server) *[]string { return &s.Tenants }),
		{"server_requests", nested(serverRequests, func(s *contract.Server) *contract.Asks { return &s.Asks }),
			"refused", "What the agent may ask of the person at the caller: a task that wants input is a form.",
			"internal/executor/upstream"},
	},
	check: func(p *parser, e field, s *contract.Server, at map[string]field) {
		if at["url"].Val == nil {
			p.Fail(e.Key, "key.missing", "as in url: https://agent.example.com", "a peer needs a url")
		}
		if s.CardKey != "" && !thumbprint().MatchString(s.CardKey) {
			p.Fail(at["card"].Val, "value.fingerprint", "jwks of the agent has it as kid", "a thumbprint is 43 characters of base64url")
		}
	},
}

var thumbprint = pattern.Lazy(`^[A-Za-z0-9_-]{43}$`)

var nameForms = strictyaml.OneOf("prefixed", "plain")

// serverLimits and runLimits bound a sandbox: of a server, of one run.
var (
	memory = func(l *contract.Limits) *int { return &l.MemoryMB }
	pids   = func(l *contract.Limits) *int { return &l.Pids }
	files  = func(l *contract.Limits) *int { return &l.Files }
	disk   = func(l *contract.Limits) *int { return &l.DiskMB }

	serverLimits = &mapping[contract.Limits]{
		name: "server_limits", title: "limits",
		keys: []key[contract.Limits]{
			{"memory_mb", whole(16, 1<<20, memory), "1024", "Memory, in MiB.", "internal/sandbox"},
			{"pids", whole(1, 1<<15, pids), "256", "Processes and threads.", "internal/sandbox"},
			{"files", whole(16, 1<<20, files), "1024", "Open files of one process.", "internal/sandbox"},
			{"disk_mb", whole(1, 1<<20, disk), "256", "Each writable place, in MiB.", "internal/sandbox"},
		},
	}

	runLimits = &mapping[contract.Limits]{
		name: "run_limits", title: "limits",
		keys: []key[contract.Limits]{
			{"memory_mb", whole(16, 1<<20, memory), "512", "Memory of the whole process tree, in MiB.", "internal/sandbox"},
			{"cpu_seconds", seconds(24*3600, func(l *contract.Limits) *time.Duration { return &l.CPU }),
				"10, or timeout_seconds where that is written and longer", "Processor time of the whole process tree.",
				"internal/sandbox"},
			{"pids", whole(1, 1<<15, pids), "64", "Processes and threads at a time.", "internal/sandbox"},
			{"files", whole(16, 1<<16, files), "64", "Open files of one process.", "internal/sandbox"},
			{"disk_mb", whole(1, 1<<20, disk), "256", "Each writable folder, in MiB.", "internal/sandbox"},
			{"output_kb", whole(1, 1<<20, func(l *contract.Limits) *int { return &l.OutputKB }),
				"200", "Stdout and stderr kept, in KiB each.", "internal/sandbox"},
		},
	}
)

var (
	elicitations = strictyaml.OneOf("form", "url")
	hostRoots    = strictyaml.OneOf("host")
)

var serverRequests = &mapping[contract.Asks]{
	name:    "server_requests",
	example: "servers:\n  s: {command: [server], server_requests: {elicitation: [form], roots: [./src]}}\n",
	keys: []key[contract.Asks]{
		{"elicitation", custom(wordsShape(elicitations),
			func(p *parser, f field, a *contract.Asks) {
				modes := p.Words(f, elicitations)
				a.Form, a.URL = slices.Contains(modes, "form"), slices.Contains(modes, "url")
			}),
			"refused", "Ask the person for data in a form, or show an address to open.", "internal/executor/upstream"},
		{"sampling", boolean(func(a *contract.Asks) *bool { return &a.Sampling }),
			"false", "Ask the host's model for text.", "internal/executor/upstream"},
		{"roots", either(isSequence, texts(func(a *contract.Asks) *[]string { return &a.Roots }),
			custom(wordShape(hostRoots),
				func(p *parser, f field, a *contract.Asks) { a.HostRoots = p.Word(f, hostRoots) == "host" })),
			"refused",
			"The folders that the server gets as roots: these, from the folder of this file, or with host those of the host.",
			"internal/executor/upstream"},
	},
}

var auth = &mapping[contract.Auth]{
	name:    "auth",
	example: "servers:\n  s: {url: 'https://mcp.example.com/', auth: {bearer: \"env:TOKEN\"}}\n",
	keys: []key[contract.Auth]{
		{"bearer", ref(func(a *contract.Auth) *secret.Ref { return &a.Bearer }),
			"none", "A token, sent in the Authorization header.", "internal/network/mcphttp"},
		{"headers", leaf(outline.Shape{Name: "headers to secrets", Schema: outline.MapOf(refSchema)}, (*parser).headers,
			func(a *contract.Auth) *map[string]secret.Ref { return &a.Headers }),
			"none", "Other headers that hold secrets, by name.", "internal/network/mcphttp"},
		{"oauth", pointer(oauth, func(a *contract.Auth) **contract.OAuth { return &a.OAuth }),
			"none", "A token that an authorization server issues; waldo stores and renews it.", "internal/network/oauth"},
	},
	check: func(p *parser, _ field, _ *contract.Auth, at map[string]field) {
		if at["bearer"].Key != nil && at["oauth"].Key != nil {
			p.Fail(at["bearer"].Key, "auth.twice", "keep one", "a server is shown either a bearer token or one of oauth")
		}
	},
}

var oauth = &mapping[contract.OAuth]{
	name: "oauth",
	example: "servers:\n  s:\n    url: https://mcp.example.com/\n" +
		"    auth: {oauth: {grant: client_credentials, client_id: waldo, client_secret: \"env:CLIENT_SECRET\"}}\n",
	keys: []key[contract.OAuth]{
		{"grant", or("authorization_code", word(strictyaml.OneOf("authorization_code", "client_credentials"),
			func(o *contract.OAuth) *string { return &o.Grant })),
			"", "How waldo gets the token: by a person with waldo login, or with the client's own secret.",
			"internal/network/oauth"},
		{"client_id", text(func(o *contract.OAuth) *string { return &o.ClientID }),
			"waldo registers itself where that is offered", "The client that is registered for waldo.",
			"internal/network/oauth"},
		{"client_secret", ref(func(o *contract.OAuth) *secret.Ref { return &o.Secret }),
			"none: a public client", "The secret of that client.", "internal/network/oauth"},
		{"client_key", ref(func(o *contract.OAuth) *secret.Ref { return &o.Key }),
			"none",
			"The client's private key (PKCS #8 in PEM, or a JSON Web Key), which signs client assertions (private_key_jwt).",
			"internal/network/oauth"},
		{"client_metadata", leaf(textShape, (*parser).metadata, func(o *contract.OAuth) *string { return &o.Metadata }),
			"none", "The https address of a client metadata document, used as the client's id where the issuer takes one.",
			"internal/network/oauth"},
		{"scopes", texts(func(o *contract.OAuth) *[]string { return &o.Scopes }),
			"the scopes that the server requests", "The scopes of the token.", "internal/network/oauth"},
		{"dpop", or("offered", word(strictyaml.OneOf("offered", "required", "never"),
			func(o *contract.OAuth) *string { return &o.DPoP })),
			"", "Whether tokens are bound to a key of waldo (DPoP): where the issuer offers it, always or never.",
			"internal/network/oauth"},
		{"issuer", address(func(o *contract.OAuth) *string { return &o.Issuer }),
			"the first that the server names", "The only authorization server that is trusted with the client.",
			"internal/network/oauth"},
	},
	check: func(p *parser, f field, o *contract.OAuth, at map[string]field) {
		id, secret, key := at["client_id"].Val, at["client_secret"].Val, at["client_key"].Val
		switch {
		case secret != nil && key != nil:
			p.Fail(key, "auth.twice", "keep one", "a client is shown either by a secret or by a key")
		case o.Grant == "client_credentials" && (id == nil || secret == nil && key == nil):
			p.Fail(f.Key, "key.missing", "write client_id and client_secret or client_key",
				"client_credentials needs a client that is registered")
		case (secret != nil || key != nil) && id == nil:
			p.Fail(f.Key, "key.missing", "write client_id", "a client_secret or client_key belongs to a client_id")
		}
	},
}

// server reads one entry of servers.
func (p *parser) server(e field) {
	s := contract.Server{Name: e.Name, At: p.At(e.Key)}
	server.read(p, e, &s)
	p.cfg.Servers[e.Name] = s
}

// peer reads one entry of peers.
func (p *parser) peer(e field) {
	s := contract.Server{Name: e.Name, At: p.At(e.Key)}
	peer.read(p, e, &s)
	p.cfg.Servers[e.Name] = s
}

// SameServer reports whether two entries say the same, wherever in a file.
func SameServer(a, b contract.Server) bool { return alike(reflect.ValueOf(a), reflect.ValueOf(b)) }

// alike compares two values of one type. Positions are equal.
func alike(a, b reflect.Value) bool {
	if a.Type() == reflect.TypeFor[contract.Position]() {
		return true
	}
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if !alike(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || alike(a.Elem(), b.Elem()))
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !alike(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for _, k := range a.MapKeys() {
			if other := b.MapIndex(k); !other.IsValid() || !alike(a.MapIndex(k), other) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}

// headers reads a mapping of header to secret. Those that HTTP and MCP write themselves are refused.
func (p *parser) headers(f field) map[string]secret.Ref {
	out := map[string]secret.Ref{}
	for _, e := range p.Entries(f) {
		name := textproto.CanonicalMIMEHeaderKey(e.Name)
		switch {
		case strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" ||
			name == "" || len(name) > 128:
			p.Fail(e.Key, "value.name", "as in X-Api-Key", "%q is not the name of a header", contract.Cut(e.Name, 40))
			continue
		case own[name] || strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Proxy-") ||
			strings.HasPrefix(name, "Sec-"):
			p.Fail(e.Key, "value.name", "use bearer for Authorization", "the header %s is written by waldo itself",
				contract.Cut(name, 40))
			continue
		}
		out[name] = p.used(e)
	}
	return out
}

// own are the headers that belong to HTTP and MCP.
var own = map[string]bool{
	"Authorization": true, "Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true,
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Transfer-Encoding": true, "Te": true, "Trailer": true,
	"Upgrade": true, "Cookie": true, "Origin": true, "Last-Event-Id": true, "Expect": true,
}

// placed checks that a server is reached in one way and that its sandbox can hold each limit.
func (p *parser) placed(e field, s *contract.Server, at map[string]field) {
	has := func(k string) bool { return at[k].Val != nil }
	switch {
	case !has("command") && !has("url"):
		p.Fail(e.Key, "server.unreachable", "write a command or a url", "server %q has no command and no url",
			contract.Cut(e.Name, 40))
		return
	case has("command") && has("url"):
		p.Fail(at["url"].Val, "server.twice", "keep one", "server %q has both a command and a url", contract.Cut(e.Name, 40))
		return
	}
	if s.Placement == "" {
		s.Placement = "sandbox"
		if s.URL != "" {
			s.Placement = "outside"
		}
	}
	if s.URL != "" && s.Placement != "outside" {
		p.Fail(at["placement"].Val, "key.misplaced", "write placement: outside",
			"a server at a url runs elsewhere: waldo cannot put it in a sandbox")
	}
	if n := at["trust"].Val; n != nil && (s.Placement != "outside" || s.URL != "") {
		p.Fail(n, "key.misplaced", "remove it", "trust is for a command with placement: outside")
	}
	if s.Placement == "workspace" {
		if n := at["per_session"].Val; n != nil && !s.PerSession {
			p.Fail(n, "key.misplaced", "remove it, or write placement: sandbox",
				"a server in the workspace of a session is that session's own")
		}
		if n := at["mounts"].Val; n != nil {
			p.Fail(n, "key.misplaced", "remove it, or write placement: sandbox",
				"a server in the workspace of a session sees that session's input")
		}
		s.PerSession = true
	}
	if s.URL == "" && has("auth") {
		p.Fail(at["auth"].Val, "key.misplaced", "use secrets to give a program its token",
			"auth belongs to a server at a url")
	}
	inSandbox := []string{"network", "mounts", "limits", "data", "isolation"}
	if s.URL != "" {
		inSandbox = append(inSandbox, "secrets", "env")
	}
	for _, k := range inSandbox {
		if n := at[k].Val; n != nil && s.Placement == "outside" {
			p.Fail(n, "key.not_enforced", "remove it, or write placement: sandbox",
				"%q cannot be held to for a server outside", k)
		}
	}
}

func (p *parser) metadata(f field) string {
	s := p.Text(f)
	if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Host == "" || len(u.Path) < 2 {
		p.Fail(f.Val, "value.url", "as in https://example.com/waldo.json", "not the address of a client metadata document")
	}
	return s
}

func (p *parser) address(f field) string {
	s := p.Text(f)
	u, err := url.Parse(s)
	switch {
	case s == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		p.Fail(f.Val, "value.url", "as in https://host/mcp", "not the address of a server")
	case u.User != nil:
		p.Fail(f.Val, contract.CodeLiteral, "use auth: {bearer: env:VARIABLE}", "an address must not hold a password")
	case u.Scheme == "http" && !hostrule.Loopback(u.Hostname()):
		p.Fail(f.Val, "value.url", "use https", "http is taken only on this machine")
	default:
		return s
	}
	return ""
}
