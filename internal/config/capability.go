package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
	"waldo/internal/detect"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// ManagerForHighPriority is the condition of the shorthand manager_for_high_priority. It ignores letter case and
// surrounding spaces. An absent priority, or one that is not text, requires approval.
const ManagerForHighPriority = "args.priority.trim().lowerAscii() == 'high'"

// classes are the data classes that redaction can hide; secrets are always hidden, the others on request.
var classes = strictyaml.OneOf(detect.Classes()...)

// capabilities is the mapping of capabilities to contracts: a mapping, or the word deny.
var capabilities = value[contract.Config]{
	shapes: []outline.Shape{{Name: "mapping", Of: capability.outline, Named: true, Words: []string{"deny"}}},
	read: func(p *parser, f field, _ *contract.Config) {
		for _, e := range p.Entries(f) {
			p.capability(e)
		}
	},
}

// capability declares the keys of a contract.
var capability = &mapping[contract.Contract]{
	name: "capability", title: "a capability",
	doc: "A contract: a mapping with these keys, or the word `deny`. [contract.md](../contract.md) says which contract " +
		"decides\na call. A missing key takes its most restrictive reading.",
	example: "capabilities:\n  run_python: {transport: sandboxed_exec, mode: write, approval: none, timeout_seconds: " +
		"60}\n  run_shell: deny\n",
	keys: []key[contract.Contract]{
		{"transport", word(strictyaml.OneOf("direct", "mcp", "sandboxed_exec", "a2a"),
			func(c *contract.Contract) *contract.Transport { return &c.Transport }),
			"from the name: a defined server's is mcp, a built-in's its own; otherwise denied",
			"How the capability is reached.", "internal/core/policy"},
		{"mode", custom(wordShape(modes),
			func(p *parser, f field, c *contract.Contract) { _ = c.Mode.UnmarshalText([]byte(p.Word(f, modes))) }),
			"high_risk", "The risk class.", "internal/core/policy"},
		{"danger", whole(1, 3, func(c *contract.Contract) *int { return &c.Danger }),
			"by mode: read 1, write 2, high_risk 3", "The danger level, 1 to 3, never below what the mode implies.",
			"internal/core/policy"},
		{"isolation",
			or("auto", word(strictyaml.OneOf("auto", "namespace", "gvisor", "confined", "engine"),
				func(c *contract.Contract) *string { return &c.Isolation })),
			"auto: namespace for read and write (engine outside Linux), gvisor for high_risk",
			"How strong a sandbox a sandboxed_exec gets.",
			"internal/core/policy"},
		{"server", label(func(c *contract.Contract) *string { return &c.Server }),
			"the first part of the name, where a server has it", "The upstream it belongs to.", "internal/core/policy"},
		{"tool", text(func(c *contract.Contract) *string { return &c.Tool }),
			"the rest of the name", "The upstream's own name for it.", "internal/core/policy"},
		{"network", reachable(strictyaml.OneOf("denied", "none", "internal_only"),
			func(c *contract.Contract) *contract.Network { return &c.Network }),
			"denied", "The hosts it may reach; internal_only allows the hosts of internal, or none without that list.",
			"internal/network/egress"},
		{"filesystem", custom(wordShape(fileWords),
			func(p *parser, f field, c *contract.Contract) {
				if p.Word(f, fileWords) == "workspace_only" {
					c.Filesystem = contract.WorkspaceOnly
				}
			}),
			"workspace_only",
			"Whether a sandboxed capability has the files of its session: input to read, output that persists.",
			"internal/executor/runner"},
		{"template", text(func(c *contract.Contract) *string { return &c.Template }),
			"host", "The root filesystem of its sandbox: a folder or archive by ./path or /path, or an image.",
			"internal/executor/runner"},
		{"limits", nested(runLimits, func(c *contract.Contract) *contract.Limits { return &c.Run }),
			"as below", "Limits of its sandbox; flags only narrow them.", "internal/sandbox"},
		{"input", text(func(c *contract.Contract) *string { return &c.Input }),
			"the session's own input",
			"A folder of this machine, shown read-only as /workspace/input, with names that hold keys empty." +
				" From the folder of this file.",
			"internal/executor/runner"},
		{"mounts", custom(projects.shape(), (*parser).projects),
			"none", "Other files and folders of this machine in its sandbox, by their path there.", "internal/executor/runner"},
		{"protect", texts(func(c *contract.Contract) *[]string { return &c.Protect }),
			"none", "More names that are read-only in its writable mounts, as in deploy/*.sh.", "internal/executor/protect"},
		{"unprotect", texts(func(c *contract.Contract) *[]string { return &c.Unprotect }),
			"none", "Patterns of the table of protected names that do not hold, as in .env.", "internal/executor/protect"},
		{"env", pairs(func(c *contract.Contract) *map[string]string { return &c.Env }),
			"none", "Environment variables of its sandbox without secrets.", "internal/executor/runner"},
		{"root", text(func(c *contract.Contract) *string { return &c.Root }), "none", "The only folder of a files tool, from the folder of this file.",
			"internal/feature/files"},
		{"allow", texts(func(c *contract.Contract) *[]string { return &c.Programs }),
			"none", "The programs that a cli tool may run; waldo has rules for their arguments. `NAME *` allows any.",
			"internal/executor/commands"},
		{"url", leaf(databaseShape, (*parser).database, func(c *contract.Contract) *string { return &c.Database }),
			"none", "The database of an sql tool: a secret whose value is a postgres:// URL, or sqlite:FILE.",
			"internal/feature/sql"},
		{"secrets", either(isMapping, refs(func(c *contract.Contract) *map[string]secret.Ref { return &c.Secrets }),
			custom(outline.Shape{
				Name:   "none, or a secret",
				Schema: map[string]any{"anyOf": []any{map[string]any{"enum": []string{"none"}}, refSchema}},
			},
				func(p *parser, f field, c *contract.Contract) {
					if f.Val.Value != "none" {
						r := p.used(f)
						c.Secrets = map[string]secret.Ref{string(r): r}
					}
				})),
			"none", "The secrets it may use, by the variable in which a sandbox finds them.", "internal/core/policy"},
		{"reveal", texts(func(c *contract.Contract) *[]string { return &c.Reveal }),
			"none", "Those of the variables that hold the secret itself in the sandbox; its code can read and keep it.",
			"internal/executor/runner"},
		{"environments", texts(func(c *contract.Contract) *[]string { return &c.Environments }),
			"every environment", "The environments it works in.", "internal/core/policy"},
		tenantsOf("none, where tenants are defined", "The tenants that can see and call it; \"*\" is every one.",
			func(c *contract.Contract) *[]string { return &c.Tenants }),
		{"timeout_seconds", or("30", seconds(24*3600, func(c *contract.Contract) *time.Duration { return &c.Timeout })),
			"", "Wall-clock seconds for one try.", "internal/executor/runner"},
		{"retry", nested(retry, func(c *contract.Contract) *contract.Retry { return &c.Retry }),
			"never", "How often to try again: a read; a write with an idempotency argument, or that did not happen by settle.",
			"internal/executor/upstream"},
		{"rate_limit", nested(rateLimit, func(c *contract.Contract) *contract.Rate { return &c.RateLimit }),
			"none of its own; the session's budget holds", "How many calls of one principal in any window of time.", "internal/core/effects"},
		{"concurrency", whole(1, 10_000, func(c *contract.Contract) *int { return &c.Concurrency }),
			"none of its own", "How many calls of one principal at once.", "internal/core/effects"},
		{"idempotency", nested(idempotency, func(c *contract.Contract) *contract.Idempotency { return &c.Idempotency }),
			"a caller's own key holds for 24h", "Keys that make a repeated call harmless.", "internal/core/effects"},
		{"settle", nested(settle, func(c *contract.Contract) *contract.Settle { return &c.Settle }),
			"none", "The read that finds out whether a write with an unknown outcome happened.", "internal/core/effects"},
		{"response_budget_bytes", or("65536", whole(1, 16<<20, func(c *contract.Contract) *int { return &c.ResponseBudget })),
			"", "How much of a result the model sees.", "internal/core/redact"},
		{"approval", either(isMapping, nested(approval, func(c *contract.Contract) *contract.Approval { return &c.Approval }),
			custom(wordShape(approvalWords), (*parser).approvalWord)),
			"always", "When a human is asked.", "internal/core/policy"},
		{"confirm", boolean(func(c *contract.Contract) *bool { return &c.Confirm }), "false",
			"The first call shows what it would do, and the same call with the token of that preview acts.",
			"internal/core/approval/confirm"},
		{"witness", custom(wordShape(requiredWord),
			func(p *parser, f field, c *contract.Contract) { c.Witness = p.Word(f, requiredWord) == "required" }),
			"none", "With required, the witnesses of log.policy must cosign the log before each call acts.",
			"internal/feature/evidence"},
		{"writes", custom(wordShape(writeWords),
			func(p *parser, f field, c *contract.Contract) { c.Hold = p.Word(f, writeWords) == "hold" }),
			"live", "With hold, the program's writes are collected, and one yes at its end covers them.",
			"internal/core/hold"},
		{"rules", list(rule, "rules", `as in [{when: "args.public == true", danger: 3}]`,
			func(c *contract.Contract) *[]contract.Rule { return &c.Rules }),
			"none", "Conditions on the call that raise the danger or refuse it.", "internal/core/policy"},
		{"packages", nested(packages, func(c *contract.Contract) *registries { return &c.Network.Packages }),
			"none", "The registries it may install packages from, by manager.", "internal/network/egress"},
		{"log",
			or("full", word(strictyaml.OneOf("full"), func(c *contract.Contract) *string { return &c.Log })),
			"", "Form of the arguments in the audit log: redacted, or their digest alone.", "internal/core/audit"},
		{"redact",
			either(isNone,
				custom(wordShape(noneWord), func(_ *parser, _ field, c *contract.Contract) { c.Redact = withSecrets(nil) }),
				custom(wordsShape(classes), func(p *parser, f field, c *contract.Contract) {
					c.Redact = withSecrets(p.Words(f, classes))
				})),
			"as redaction.model", "Data classes hidden from the model in its results; with none, only secrets are hidden.",
			"internal/core/redact"},
		{"rollback", nested(rollback, func(c *contract.Contract) *contract.Rollback { return &c.Rollback }),
			"none", "The call that undoes it, for waldo undo.", "internal/core/effects"},
		{"trust",
			or("untrusted", word(strictyaml.OneOf("untrusted", "partial", "trusted"),
				func(c *contract.Contract) *string { return &c.Trust })),
			"", "How far its results may be believed.", "internal/core/redact"},
		{"a2a", nested(exposed, func(c *contract.Contract) *contract.Contract { return c }),
			"not exposed", "Whether agents elsewhere can call it over A2A.", "internal/feature/a2a"},
		{"examples", list(example, "examples", "as in [{args: {id: 1}, expect: allow}]",
			func(c *contract.Contract) *[]contract.Example { return &c.Examples }),
			"none", "Calls and their expected decisions, checked at every load.", "internal/core/policy"},
	},
	check: func(p *parser, _ field, c *contract.Contract, at map[string]field) {
		for name, f := range at {
			c.Keys[name] = p.At(f.Key)
		}
	},
}

var (
	modes         = strictyaml.OneOf("read", "write", "high_risk")
	fileWords     = strictyaml.OneOf("workspace_only", "none")
	requiredWord  = strictyaml.OneOf("none", "required")
	writeWords    = strictyaml.OneOf("live", "hold")
	approvalWords = strictyaml.OneOf("none", "always", "manager_for_high_priority").
			Or(`{when: "args.amount > 100.0"}`)
	noneWord = strictyaml.OneOf("none")
)

func isNone(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == "none" }

var exposed = &mapping[contract.Contract]{
	name: "a2a",
	doc:  "[a2a.md](../a2a.md) describes waldo among other agents.",
	example: "capabilities:\n  run_python: {transport: sandboxed_exec, mode: write, approval: none, " +
		"a2a: {expose: true}}\n",
	keys: []key[contract.Contract]{
		{"expose", boolean(func(c *contract.Contract) *bool { return &c.Expose }), "false",
			"The agent card lists it as a skill, and messages call it.", "internal/core/policy"},
	},
}

var retry = &mapping[contract.Retry]{
	name:    "retry",
	example: "capabilities:\n  s.get: {transport: mcp, mode: read, retry: {max: 2, on: [unavailable, timeout]}}\n",
	keys: []key[contract.Retry]{
		{"max", whole(1, 5, func(r *contract.Retry) *int { return &r.Max }), "", "Further tries, 1 to 5.",
			"internal/executor/upstream"},
		{"on",
			or("[unavailable]", words(strictyaml.OneOf("unavailable", "timeout"),
				func(r *contract.Retry) *[]string { return &r.On })),
			"", "After which failures.", "internal/executor/upstream"},
	},
	check: func(p *parser, f field, r *contract.Retry, _ map[string]field) {
		if r.Max == 0 {
			p.Fail(f.Key, "key.missing", "write max: 1 to 5", "retry needs max")
		}
	},
}

var idempotency = &mapping[contract.Idempotency]{
	name:    "idempotency",
	example: "capabilities:\n  s.create: {transport: mcp, mode: write, idempotency: {argument: request_id, window: 24h}}\n",
	keys: []key[contract.Idempotency]{
		{"argument", text(func(i *contract.Idempotency) *string { return &i.Argument }), "none: the tool takes no key",
			"The argument that carries the key; waldo fills it where the caller gave none.", "internal/core/effects"},
		{"window", duration(30*24*time.Hour, func(i *contract.Idempotency) *time.Duration { return &i.Window }), "24h",
			"How long a key is remembered.", "internal/core/effects"},
	},
	check: func(p *parser, f field, i *contract.Idempotency, _ map[string]field) {
		if *i == (contract.Idempotency{}) {
			p.Fail(f.Val, "value.empty", "as in {argument: request_id}", "idempotency needs argument or window")
		}
	},
}

var settle = &mapping[contract.Settle]{
	name: "settle",
	example: "capabilities:\n  s.search: {transport: mcp, mode: read, approval: none}\n  s.create:\n" +
		"    transport: mcp\n    mode: write\n    settle: {by: s.search, args: {query: args.title}, " +
		"happened: \"result.total > 0.0\"}\n",
	begin: func(p *parser, f field, s *contract.Settle) { s.At = p.At(f.Key) },
	keys: []key[contract.Settle]{
		{"by", text(func(s *contract.Settle) *string { return &s.By }), "", "The capability that reads.",
			"internal/core/effects"},
		{"args", leaf(anyShape, (*parser).object, func(s *contract.Settle) *map[string]any { return &s.Args }),
			"{}", "Its arguments; a text is a CEL expression over args and began.", "internal/core/effects"},
		{"happened", text(func(s *contract.Settle) *string { return &s.Happened }), "",
			"A CEL expression over args, result, text and began: true if the call happened, false if not.", "internal/core/effects"},
		{"within", or("10s", duration(5*time.Minute, func(s *contract.Settle) *time.Duration { return &s.Within })), "",
			"How long the read may take.", "internal/core/effects"},
	},
	check: func(p *parser, f field, s *contract.Settle, _ map[string]field) {
		if s.By == "" || s.Happened == "" {
			p.Fail(f.Key, "key.missing", `as in {by: s.search, args: {query: args.title}, happened: "result.total > 0.0"}`,
				"settle needs by and happened")
		}
	},
}

var rollback = &mapping[contract.Rollback]{
	name: "rollback",
	example: "capabilities:\n  s.create:\n    transport: mcp\n    mode: write\n" +
		"    rollback: {by: s.delete, args: {id: result.id}}\n",
	begin: func(p *parser, f field, r *contract.Rollback) { r.At = p.At(f.Key) },
	keys: []key[contract.Rollback]{
		{"by", text(func(r *contract.Rollback) *string { return &r.By }), "", "The capability that undoes the call.",
			"internal/core/effects"},
		{"args", leaf(anyShape, (*parser).object, func(r *contract.Rollback) *map[string]any { return &r.Args }),
			"{}", "Its arguments; a text is a CEL expression over args, result, text and began.", "internal/core/effects"},
	},
	check: func(p *parser, f field, r *contract.Rollback, _ map[string]field) {
		if r.By == "" {
			p.Fail(f.Key, "key.missing", "as in {by: s.delete, args: {id: result.id}}", "rollback needs by")
		}
	},
}

var windows = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
}

var rateLimit = &mapping[contract.Rate]{
	name:    "rate_limit",
	example: "capabilities:\n  s.get: {transport: mcp, mode: read, rate_limit: {calls: 10, per: minute}}\n",
	keys: []key[contract.Rate]{
		{"calls", whole(1, 1_000_000, func(r *contract.Rate) *int { return &r.Calls }), "", "How many calls.",
			"internal/core/effects"},
		{"per", leaf(textShape, func(p *parser, f field) time.Duration {
			if d := windows[f.Val.Value]; d != 0 {
				return d
			}
			return p.Duration(f, 24*time.Hour)
		}, func(r *contract.Rate) *time.Duration { return &r.Per }),
			"", "In how long: second, minute, hour, day or a time such as 10s.", "internal/core/effects"},
	},
	check: func(p *parser, f field, r *contract.Rate, _ map[string]field) {
		if r.Calls == 0 || r.Per == 0 {
			p.Fail(f.Key, "key.missing", "as in {calls: 10, per: minute}", "rate_limit needs calls and per")
		}
	},
}

var approval = &mapping[contract.Approval]{
	name:    "approval",
	example: "capabilities:\n  s.send: {transport: mcp, mode: write, approval: {when: \"args.public == true\"}}\n",
	begin:   func(p *parser, f field, a *contract.Approval) { a.At = p.At(f.Key) },
	keys: []key[contract.Approval]{
		{"when", custom(textShape,
			func(p *parser, f field, a *contract.Approval) {
				a.When, a.Condition = contract.If, &contract.Condition{Source: p.Text(f), At: p.At(f.Val)}
			}),
			"always", "A CEL expression; a human is asked if it is true or cannot be evaluated.", "internal/core/policy"},
		{"by", label(func(a *contract.Approval) *string { return &a.By }),
			"any approver", "The role that may answer.", "internal/core/approval"},
		{"need", whole(1, 10, func(a *contract.Approval) *int { return &a.Need }),
			"1", "How many different approvers must say yes, 1 to 10.", "internal/core/approval"},
	},
	check: func(p *parser, f field, _ *contract.Approval, _ map[string]field) {
		if len(f.Val.Content) == 0 {
			p.Fail(f.Val, "value.empty", "write always, or when and by", "approval says nothing")
		}
	},
}

var rule = &mapping[contract.Rule]{
	name: "rule", title: "a rule",
	example: "capabilities:\n  s.send:\n    transport: mcp\n    mode: write\n    rules:\n" +
		"      - {when: \"args.public == true\", danger: 3, reason: \"it would be public\"}\n",
	begin: func(p *parser, f field, r *contract.Rule) { r.When.At = p.At(f.Val) },
	keys: []key[contract.Rule]{
		{"when", custom(textShape,
			func(p *parser, f field, r *contract.Rule) {
				r.When = contract.Condition{Source: p.Text(f), At: p.At(f.Val)}
			}),
			"", "A CEL expression; the rule applies if it is true or cannot be evaluated.", "internal/core/policy"},
		{"danger", whole(1, 3, func(r *contract.Rule) *int { return &r.Danger }),
			"none; a rule has danger or deny", "The danger level of the call.", "internal/core/policy"},
		{"deny", boolean(func(r *contract.Rule) *bool { return &r.Deny }), "false", "Refuse the call.",
			"internal/core/policy"},
		{"reason", text(func(r *contract.Rule) *string { return &r.Reason }),
			"none", "Shown to the approver and in the decision.", "internal/core/policy"},
	},
	check: func(p *parser, f field, r *contract.Rule, _ map[string]field) {
		if r.When.Source == "" || r.Deny == (r.Danger != 0) {
			p.Fail(f.Val, "key.missing", `as in {when: "args.public == true", danger: 3}`,
				"a rule needs when, and either danger or deny: true")
		}
	},
}

var example = &mapping[contract.Example]{
	name: "example", title: "an example",
	example: "capabilities:\n  s.send:\n    transport: mcp\n    mode: write\n    examples: [{args: {to: alice}, " +
		"expect: ask}]\n",
	begin: func(p *parser, f field, x *contract.Example) { x.At = p.At(f.Val) },
	keys: []key[contract.Example]{
		{"args", leaf(anyShape, (*parser).object, func(x *contract.Example) *map[string]any { return &x.Args }),
			"{}", "The arguments of the call.", "internal/core/policy"},
		{"expect", word(strictyaml.OneOf("allow", "ask", "deny"), func(x *contract.Example) *string { return &x.Expect }),
			"", "The decision, on a machine with every ability.", "internal/core/policy"},
		{"capability", text(func(x *contract.Example) *string { return &x.Capability }),
			"the entry's own name; needed with a pattern", "The name that is called.", "internal/core/policy"},
	},
	check: func(p *parser, f field, x *contract.Example, _ map[string]field) {
		if x.Expect == "" {
			p.Fail(f.Val, "key.missing", "write expect: allow, ask or deny", "an example needs expect")
		}
	},
}

// capability parses one entry of capabilities. A missing key takes its strictest value.
func (p *parser) capability(e field) {
	c := contract.Contract{Pattern: e.Name, At: p.At(e.Key), Keys: map[string]contract.Position{}}
	c.Approval.At = c.At
	p.user = "capability " + e.Name
	if text, hint := contract.Pattern(e.Name).Fault(); text != "" {
		p.Fail(e.Key, "value.name", hint, "%s: %q", text, contract.Cut(e.Name, 40))
	}
	if e.Val.Kind == yaml.ScalarNode {
		capability.defaults(&c)
		c.Denied = p.denied(e)
	} else {
		p.meansDeny(e)
		capability.read(p, e, &c)
	}
	p.cfg.Contracts = append(p.cfg.Contracts, c)
}

func (p *parser) approvalWord(f field, c *contract.Contract) {
	c.Approval = contract.Approval{At: p.At(f.Key)}
	switch p.Word(f, approvalWords) {
	case "none":
		c.Approval.When = contract.Never
	case "manager_for_high_priority":
		c.Approval.When, c.Approval.By = contract.If, "manager"
		c.Approval.Condition = &contract.Condition{Source: ManagerForHighPriority, At: p.At(f.Val)}
	}
}

// object reads the arguments of a call.
func (p *parser) object(f field) map[string]any {
	m, ok := p.Plain(f.Val).(map[string]any)
	if !ok {
		p.Fail(f.Val, "value.type", "", "%s wants a mapping, not %s", f.Name, strictyaml.Kind(f.Val))
	}
	return m
}

// withSecrets puts secrets among the classes: they are always hidden.
func withSecrets(classes []string) []string {
	for _, c := range classes {
		if c == "secrets" {
			return classes
		}
	}
	return append([]string{"secrets"}, classes...)
}

// denied reads the one word that can be a whole contract: deny.
func (p *parser) denied(e field) bool {
	if e.Val.Tag == "!!str" && e.Val.Value == "deny" {
		return true
	}
	p.Fail(e.Val, "value.type", "write a mapping, as in {mode: read, approval: none}, or "+denyLine(e.Name),
		"a capability wants a mapping or the word deny, not %s", strictyaml.Kind(e.Val))
	return false
}

// denyLine is the line that denies a capability.
func denyLine(name string) string { return contract.Cut(name, 40) + ": deny" }

// meansDeny reports keys by which people write "deny every call", and names the line that does.
func (p *parser) meansDeny(e field) {
	line := "to deny every call, write " + denyLine(e.Name)
	for i := 0; i+1 < len(e.Val.Content) && e.Val.Kind == yaml.MappingNode; i += 2 {
		k, v := e.Val.Content[i], e.Val.Content[i+1]
		switch {
		case k.Value == "deny":
			p.Hints[k] = line
		case k.Value == "mode" && (v.Value == "deny" || v.Value == "denied" || v.Value == "never"):
			p.Hints[v] = line
		case k.Value == "approval" && (v.Value == "never" || v.Value == "deny" || v.Value == "denied"):
			p.Hints[v] = line + "; to ask nobody, write approval: none"
		case k.Value == "rules" && v.Kind == yaml.SequenceNode:
			for _, r := range v.Content {
				p.Hints[r] = `as in {when: "args.public == true", danger: 3}; ` + line
			}
		}
	}
}
