package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// file declares the keys at the top of waldo.yaml.
var file = &mapping[contract.Config]{
	name: "waldo.yaml", title: "the file",
	example: "version: 1\nenvironment: production\n",
	keys: []key[contract.Config]{
		{"version", custom(outline.Whole(1, 1), func(p *parser, f field, _ *contract.Config) { p.Integer(f, 1, 1) }),
			"1", "The version of this format: 1.", "internal/config"},
		{"environment", label(func(c *contract.Config) *string { return &c.Environment }),
			"none: capabilities that name environments are denied",
			"The name of this deployment, as in production.", "internal/core/policy"},
		{"servers", named(server, (*parser).server, func(c *contract.Config) map[string]contract.Server { return c.Servers }),
			"none", "The upstream MCP servers, by name.", "internal/executor/upstream"},
		{"peers", named(peer, (*parser).peer, func(c *contract.Config) map[string]contract.Server { return c.Servers }),
			"none", "The agents of A2A that waldo calls, by name; each is like a server, under another name.",
			"internal/network/a2apeer"},
		{"secrets",
			named(secretEntry, (*parser).secret, func(c *contract.Config) map[string]contract.Secret { return c.Secrets }),
			"none", "Secrets by name, with the place of each.", "internal/model/secret"},
		{"capabilities", capabilities,
			"none: every capability is denied",
			"The contracts: an entry or the word deny for each capability, or pattern with *.", "internal/core/policy"},
		{"rules", list(rule, "rules", `as in [{when: "secrets(args)", danger: 3}]`,
			func(c *contract.Config) *[]contract.Rule { return &c.Rules }),
			"none", "Danger by argument for every capability, behind the rules of its own contract.", "internal/core/policy"},
		{"internal", hosts(func(c *contract.Config) *[]string { return &c.Internal }),
			"none", "The hosts that network: internal_only allows; their names may resolve to private addresses.",
			"internal/network/egress"},
		{"addresses", custom(rolesShape, (*parser).addresses),
			"none: egress dials only public addresses",
			"Addresses of your own hosts: name to addresses or prefixes; sandboxes reach the name only at these.",
			"internal/network/egress"},
		{"webhooks", named(hook, (*parser).hook, func(c *contract.Config) map[string]contract.Webhook { return c.Webhooks }),
			"none", "Signed events from outside, by name.", "internal/feature/webhook/receive"},
		{"redaction", nested(redaction, func(c *contract.Config) *contract.Redaction { return &c.Redaction }),
			"secrets alone", "The data hidden from the model.", "internal/core/redact"},
		{"approval", nested(approvals, func(c *contract.Config) *contract.Approvals { return &c.Approval }),
			"an hour, no roles", "Who may answer an approval, and when it expires.", "internal/core/approval"},
		{"log", nested(logging, func(c *contract.Config) *contract.Log { return &c.Log }),
			"every record stays", "The audit log.", "internal/core/audit"},
		{"blobs", nested(blobs, func(c *contract.Config) *contract.Blobs { return &c.Blobs }),
			"none", "The bucket that gets a copy of the log.", "internal/feature/evidence"},
		{"gateway", nested(gateway, func(c *contract.Config) *contract.Gateway { return &c.Gateway }),
			"not listening", "The MCP server that agents see.", "internal/frontend/mcpserver"},
		{"tenants", named(tenant, (*parser).tenant,
			func(c *contract.Config) map[string]contract.Tenant { return c.Gateway.Tenants }),
			"none: principals have no tenant", "The organisations that share this waldo, by name.", byIdentity},
		{"store", nested(store, func(c *contract.Config) *contract.Config { return c }),
			"sqlite", "The database for state.", "internal/storage/database"},
		{"workers", pointer(workers, func(c *contract.Config) **contract.Workers { return &c.Workers }),
			"none: every run is carried out by the waldo that decided it",
			"Runs that other machines carry out, from a queue in the store.", "internal/feature/worker"},
		{"sandboxes", nested(sandboxes, func(c *contract.Config) *contract.Sandboxes { return &c.Sandboxes }),
			"auto", "How sandboxes are made.", "internal/executor/runner"},
		{"sessions", nested(sessions, func(c *contract.Config) *contract.Sessions { return &c.Sessions }),
			"100,000 calls, 24 hours of running time", "The budgets of each session.", "internal/core/session"},
		{"agent", nested(agent, func(c *contract.Config) *contract.Agent { return &c.Agent }),
			"no agent", "The built-in agent.", "internal/feature/agent/agentrun"},
		{"telemetry", nested(telemetry, func(c *contract.Config) *contract.Telemetry { return &c.Telemetry }),
			"off", "Traces and metrics by OpenTelemetry.", "internal/feature/telemetry"},
	},
}

var telemetry = &mapping[contract.Telemetry]{
	name:    "telemetry",
	example: "telemetry: {otlp: \"http://127.0.0.1:4318\"}\n",
	keys: []key[contract.Telemetry]{
		{"otlp", address(func(t *contract.Telemetry) *string { return &t.OTLP }),
			"OTEL_EXPORTER_OTLP_ENDPOINT", "The address of a collector, for OTLP over HTTP.", "internal/feature/telemetry"},
	},
}

var redaction = &mapping[contract.Redaction]{
	name:    "redaction",
	doc:     "Secrets are always hidden from the model; personal data is, where its class is named here or in `redact`.",
	example: "redaction: {model: [secrets, email, phone], tokens: true}\n",
	keys: []key[contract.Redaction]{
		{"model", custom(wordsShape(classes),
			func(p *parser, f field, r *contract.Redaction) { r.Model = withSecrets(p.Words(f, classes)) }),
			"secrets alone", "The classes hidden from the model; secrets always are.", "internal/core/redact"},
		{"tokens", or("true", boolean(func(r *contract.Redaction) *bool { return &r.Tokens })),
			"", "Tokens such as [EMAIL_1] for personal data, restored for the next tool; false masks it.",
			"internal/core/redact"},
	},
}

var approvals = &mapping[contract.Approvals]{
	name: "approvals", title: "approval",
	example: "approval: {timeout: 1h, by: {manager: [alice]}}\n",
	keys: []key[contract.Approvals]{
		{"timeout", or("1h", duration(30*24*time.Hour, func(a *contract.Approvals) *time.Duration { return &a.Timeout })),
			"", "How long a question waits for its answer.", "internal/core/approval"},
		{"by", custom(rolesShape, (*parser).roles),
			"no roles", "Role to the principals that have it.", "internal/core/approval"},
		{"people", custom(rolesShape, (*parser).people),
			"none", "Approver to the principals that are the same person, who cannot approve their own calls.",
			"internal/core/approval"},
		{"carriers", or("[console, terminal]", words(strictyaml.OneOf(contract.Elicitation, contract.OverA2A, "console", "terminal"),
			func(a *contract.Approvals) *[]string { return &a.Carriers })),
			"", "How a question reaches a human.", "internal/core/approval"},
		{"notify", texts(func(a *contract.Approvals) *[]string { return &a.Notify }),
			"none", "A command, run without a shell, for each new question; it reads a JSON object from its standard input.",
			"internal/core/approval"},
		covers(func(a *contract.Approvals) *string { return &a.Trust }),
		{"notify_arguments", boolean(func(a *contract.Approvals) *bool { return &a.NotifyArguments }),
			"false", "Give that command the arguments of the call and the values of their tokens, too.",
			"internal/core/approval"},
		{"webhooks", list(approvalWebhook, "webhooks", `as in [{url: "env:SLACK_URL", format: slack}]`,
			func(a *contract.Approvals) *[]contract.ApprovalWebhook { return &a.Webhooks }),
			"none", "Addresses that get a message for each new question, without the arguments.",
			"internal/feature/webhook/question"},
		{"root", leaf(textShape, (*parser).fingerprint, func(a *contract.Approvals) *string { return &a.Root }),
			"the first approver in the log",
			"Fingerprint of the first approver's key, sha256: and 64 digits; no other key is taken in its place.",
			"internal/core/approval"},
	},
}

var approvalWebhook = &mapping[contract.ApprovalWebhook]{
	name: "webhook", title: "a webhook",
	example: "approval:\n  webhooks:\n    - {url: \"env:SLACK_URL\", format: slack, console: " +
		"\"https://waldo.example.com\"}\n",
	keys: []key[contract.ApprovalWebhook]{
		{"url", ref(func(w *contract.ApprovalWebhook) *secret.Ref { return &w.URL }),
			"", "The secret that holds the address: https, or http on this machine.", "internal/feature/webhook/question"},
		{"format",
			or("json", word(strictyaml.OneOf("json", "slack", "teams", "ntfy"),
				func(w *contract.ApprovalWebhook) *string { return &w.Format })),
			"", "The form of the message.", "internal/feature/webhook/question"},
		{"key", ref(func(w *contract.ApprovalWebhook) *secret.Ref { return &w.Key }),
			"none", "The secret whose HMAC-SHA256 signs the message, as Standard Webhooks do.",
			"internal/feature/webhook/question"},
		{"console", address(func(w *contract.ApprovalWebhook) *string { return &w.Console }),
			"none", "The address of the console; the message then bears a link that logs in once.",
			"internal/feature/webhook/question"},
	},
	check: func(p *parser, f field, w *contract.ApprovalWebhook, _ map[string]field) {
		if w.URL == "" {
			p.Fail(f.Val, "key.missing", `as in url: "env:SLACK_URL"`, "a webhook wants a url")
		}
	},
}

var logging = &mapping[contract.Log]{
	name:    "log",
	example: "log: {keep: 90d}\n",
	keys: []key[contract.Log]{
		{"keep", custom(outline.Shape{Name: "time", Bounds: "of days or hours",
			Schema: outline.Matching("^[1-9][0-9]{0,4}[dh]$")},
			func(p *parser, f field, l *contract.Log) { l.Keep, p.keepAt = p.Age(f), p.At(f.Val) }),
			"for ever", "Retention of records, as in 90d or 720h; at least as long as an approval can wait.",
			"internal/core/audit"},
		{"policy", custom(textShape,
			func(p *parser, f field, l *contract.Log) {
				path, err := p.At(f.Val).Beside(p.Text(f))
				if err != nil {
					p.Fail(f.Val, "log.policy", "a path, as in log: {policy: log.policy}", "%v", err)
				}
				l.Policy = path
			}),
			"none", "The file with the keys of the log and its witnesses (C2SP tlog-policy), as waldo log policy prints it.",
			"internal/feature/evidence"},
	},
}

var blobs = &mapping[contract.Blobs]{
	name: "blobs",
	example: "blobs:\n  url: \"s3://audit/host-1\"\n  endpoint: \"https://s3.example.com\"\n  region: eu-central-1\n" +
		"  key: \"env:AWS_ACCESS_KEY_ID\"\n  secret: \"env:AWS_SECRET_ACCESS_KEY\"\n",
	keys: []key[contract.Blobs]{
		{"url", text(func(b *contract.Blobs) *string { return &b.URL }),
			"", "s3://BUCKET/PREFIX, or file:///FOLDER. Each state directory needs a prefix of its own.",
			"internal/feature/evidence"},
		{"endpoint", address(func(b *contract.Blobs) *string { return &b.Endpoint }),
			"Amazon S3 in the region", "The address of another S3 API; the bucket is the first part of its paths.",
			"internal/feature/evidence"},
		{"region", text(func(b *contract.Blobs) *string { return &b.Region }),
			"us-east-1", "The region that requests are signed for.", "internal/feature/evidence"},
		{"key", ref(func(b *contract.Blobs) *secret.Ref { return &b.Key }),
			"none; needed with s3://", "The id of the access key.", "internal/feature/evidence"},
		{"secret", ref(func(b *contract.Blobs) *secret.Ref { return &b.Secret }),
			"none; needed with s3://", "The secret access key.", "internal/feature/evidence"},
		{"token", ref(func(b *contract.Blobs) *secret.Ref { return &b.Token }),
			"none", "The session token of a temporary key.", "internal/feature/evidence"},
	},
	check: func(p *parser, f field, b *contract.Blobs, _ map[string]field) { p.blobs(f, b) },
}

// blobs holds the keys of a bucket to its URL.
func (p *parser) blobs(f field, b *contract.Blobs) {
	if b.URL == "" {
		p.Fail(f.Val, "key.missing", `as in url: "s3://audit/host-1"`, "blobs wants a url")
		return
	}
	u, err := url.Parse(b.URL)
	if err != nil || !bucketURL().MatchString(b.URL) {
		p.Fail(f.Val, "blobs.url", `as in url: "s3://audit/host-1" or "file:///mnt/audit"`,
			"%q is not s3://BUCKET/PREFIX of letters, digits and . - _ /, nor file:///FOLDER", contract.Cut(b.URL, 80))
		return
	}
	access := string(b.Key + b.Secret + b.Token)
	switch {
	case u.Scheme == "file" && b.Endpoint+b.Region+access != "":
		p.Fail(f.Val, "blobs.folder", "remove the other keys", "a folder needs its url alone")
	case u.Scheme == "s3" && (b.Key == "" || b.Secret == ""):
		p.Fail(f.Val, "key.missing", `as in key: "env:AWS_ACCESS_KEY_ID"`, "a bucket wants a key and a secret")
	case u.Scheme == "s3" && b.Region == "":
		b.Region = "us-east-1"
	case u.Scheme == "s3" && !regionName().MatchString(b.Region):
		p.Fail(f.Val, "value.name", "as in eu-central-1", "%q is not a region", contract.Cut(b.Region, 40))
	}
}

var (
	bucketURL = pattern.Lazy(
		`^(file://(/[^/?#%]+)+|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)/?$`)
	regionName = pattern.Lazy(`^[a-z0-9-]{1,40}$`)
)

var store = &mapping[contract.Config]{
	name: "store",
	keys: []key[contract.Config]{
		{"url", custom(textShape, (*parser).store), "that of the state directory",
			"sqlite, or postgres://ROLE@HOST/DATABASE without a password. waldo store migrate binds the state directory to it.",
			"internal/storage/database"},
		{"key", ref(func(c *contract.Config) *secret.Ref { return &c.StoreKey }),
			"workers.key, or none: rows are believed",
			"The secret that marks the rows of hosts in one PostgreSQL; waldo worker --new-key FILE makes one.",
			"internal/storage/database"},
	},
}

var workers = &mapping[contract.Workers]{
	name:    "workers",
	example: "store: {url: \"postgres://waldo@db.example.com/waldo\"}\nworkers: {key: \"file:/etc/waldo/workers.key\"}\n",
	keys: []key[contract.Workers]{
		{"key", ref(func(w *contract.Workers) *secret.Ref { return &w.Key }),
			"", "The secret that gateways and workers share; waldo worker --new-key FILE makes one.", "internal/feature/worker"},
		{"wait", or("30s", duration(10*time.Minute, func(w *contract.Workers) *time.Duration { return &w.Wait })),
			"", "How long a run waits for a worker before it is denied with worker.absent, at most 10m.",
			"internal/feature/worker"},
	},
	check: func(p *parser, f field, w *contract.Workers, _ map[string]field) {
		w.At = p.At(f.Val)
		if w.Key == "" {
			p.Fail(f.Val, "key.missing", `as in key: "file:/etc/waldo/workers.key"`, "workers needs a key")
		}
	},
}

var sandboxes = &mapping[contract.Sandboxes]{
	name:    "sandboxes",
	doc:     "Limits of the runs that are live at a time, in one waldo process.",
	example: "sandboxes: {memory_percent: 50, per_principal: 4, wait: 30s}\n",
	keys: []key[contract.Sandboxes]{
		{"default", custom(wordShape(levels), func(p *parser, f field, _ *contract.Sandboxes) { p.Word(f, levels) }),
			"auto", "The isolation of entries that name none.", "internal/core/policy"},
		{"memory_percent", whole(1, 1000, func(s *contract.Sandboxes) *int { return &s.MemoryPercent }),
			"75", "How much of this machine's memory the limits of all live runs may sum up to, in one waldo process.",
			"internal/executor/runner"},
		{"per_principal", whole(1, 10_000, func(s *contract.Sandboxes) *int { return &s.PerPrincipal }),
			"16", "How many live runs one principal may have, in one waldo process.", "internal/executor/runner"},
		{"wait", duration(10*time.Minute, func(s *contract.Sandboxes) *time.Duration { return &s.Wait }),
			"20s", "How long a run waits for a free sandbox before it is denied with sandbox.busy, at most 10m.",
			"internal/executor/runner"},
	},
}

var sessions = &mapping[contract.Sessions]{
	name: "sessions",
	doc: "Budgets of one agent's conversation, programs included. They count in one waldo process. A call over a budget " +
		"is denied\nwith session.budget or session.depth; a program that calls faster than calls_per_second waits.",
	example: "sessions: {calls: 5000, calls_per_second: 50, depth: 2, data_mb: 500, run_seconds: 3600}\n",
	keys: []key[contract.Sessions]{
		{"calls", whole(1, 100_000_000, func(s *contract.Sessions) *int { return &s.Calls }),
			"100000", "How many calls a session makes over its whole life, denied ones included.", "internal/core/session"},
		{"calls_per_second", whole(1, 100_000, func(s *contract.Sessions) *int { return &s.CallsPerSecond }),
			"1000", "How many calls the programs of a session begin in a second; as many more at once after a pause.",
			"internal/core/session"},
		{"depth", whole(1, 64, func(s *contract.Sessions) *int { return &s.Depth }),
			"8", "How deep calls go: 1, a program calls tools; 2, the programs that it runs do so too.",
			"internal/core/session"},
		{"data_mb", whole(1, 10_000_000, func(s *contract.Sessions) *int { return &s.DataMB }),
			"10240", "MiB of arguments and results, together.", "internal/core/session"},
		{"run_seconds", whole(1, 31_536_000, func(s *contract.Sessions) *int { return &s.RunSeconds }),
			"86400", "How long the agent's own calls take together; a call that a program makes is part of its run.",
			"internal/core/session"},
	},
}

var (
	levels = strictyaml.OneOf("auto")
)

// store reads where the rows must be. The state directory decides where they are.
func (p *parser) store(f field, c *contract.Config) {
	text := p.Text(f)
	u, err := url.Parse(text)
	if text != "sqlite" && (err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "") {
		p.Fail(f.Val, "store.url", `as in url: "postgres://waldo@db.example.com/waldo"`,
			"a store is sqlite or a postgres:// URL")
		return
	}
	if u != nil && u.User != nil {
		if _, password := u.User.Password(); password {
			p.Fail(f.Val, "store.password", "give it as PGPASSWORD, or in the file that PGPASSFILE names",
				"the URL holds a password")
			return
		}
	}
	c.Store, c.StoreAt = text, p.At(f.Val)
}

func (p *parser) roles(f field, a *contract.Approvals) {
	for _, e := range p.Entries(f) {
		if !isLabel(e.Name) {
			p.Fail(e.Key, "value.name", "", "a role cannot be named %q", contract.Cut(e.Name, 40))
		}
		a.Roles[e.Name] = p.Texts(e)
	}
}

// people reads which principals an approver calls as.
func (p *parser) people(f field, a *contract.Approvals) {
	a.People = map[string][]string{}
	for _, e := range p.Entries(f) {
		a.People[e.Name] = p.Texts(e)
		for _, who := range a.People[e.Name] {
			kind, name, _ := strings.Cut(string(call.Principal(who).Local()), ":")
			if !slices.Contains([]string{"os", "oidc", "token"}, kind) || name == "" {
				p.Fail(e.Val, "value.name", "as in oidc:alice@corp.example, token:alice or os:1000",
					"%q is not a principal", contract.Cut(who, 80))
			}
		}
	}
}

func (p *parser) fingerprint(f field) string {
	s := p.Text(f)
	if s != "" && !hash().MatchString(s) {
		p.Fail(f.Val, "value.fingerprint", "remove this line; then waldo approve --list prints it",
			"a fingerprint is sha256: and 64 hexadecimal digits")
	}
	return s
}

// addresses reads where hosts of the operator's own stand: one host, its addresses or prefixes.
func (p *parser) addresses(f field, c *contract.Config) {
	for _, e := range p.Entries(f) {
		if !contract.HostName(e.Name) || strings.HasPrefix(e.Name, "*") {
			p.Fail(e.Key, "value.host", "as in registry.example.com", "%q is not the name of one host", contract.Cut(e.Name, 40))
		}
		for i, s := range p.Texts(e) {
			a, err := netip.ParsePrefix(s)
			if one, no := netip.ParseAddr(s); no == nil {
				a, err = netip.PrefixFrom(one, one.BitLen()), nil
			}
			switch {
			case err != nil || a != a.Masked() || a.Addr().Is4In6() || a.Addr().Zone() != "":
				p.Fail(e.Val.Content[i], "value.address", "as in 10.20.0.7 or 10.20.0.0/24",
					"%q is not an address or a prefix in its shortest form", contract.Cut(s, 60))
			case a.Bits() < 16 || a.Addr().Is6() && a.Bits() < 48:
				p.Fail(e.Val.Content[i], "value.address", "write the networks that it stands in, of 16 bits or more, 48 with IPv6",
					"%q is too wide for one host", contract.Cut(s, 60))
			}
			if c.Addresses == nil {
				c.Addresses = map[string][]netip.Prefix{}
			}
			c.Addresses[e.Name] = append(c.Addresses[e.Name], a)
		}
	}
}
