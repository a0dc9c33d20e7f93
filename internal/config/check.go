package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// check refuses contradictions, across keys and entries.
func (p *parser) check() {
	for name, s := range p.cfg.Servers {
		p.isolate(&s)
		p.cfg.Servers[name] = s
	}
	for i := range p.cfg.Contracts {
		c := &p.cfg.Contracts[i]
		p.checkKeys(c)
		p.checkRules(c)
		p.checkExamples(c)
		p.checkSecrets(c)
		p.reach(c)
		if c.Witness && p.cfg.Log.Policy == "" {
			p.against(c.Keys["witness"], "witness.policy", "log: {policy: FILE}, as waldo log policy --witness prints it",
				"witness: required needs the witnesses of log.policy")
		}
	}
	var plain []string
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Servers)) {
		if s := p.cfg.Servers[name]; s.Plain {
			if plain = append(plain, name); len(plain) > 1 {
				p.against(s.At, "names.twice", "leave it out for one of them",
					"servers "+plain[0]+" and "+name+" both write names: plain, which would mix up their tools")
			}
		}
	}
	for _, s := range p.cfg.Servers {
		p.checkServerSecrets(s)
	}
	p.checkPorts()
	p.checkTenants()
	switch {
	case p.openAt != nil && !p.cfg.Gateway.Authenticates():
		p.Fail(p.openAt, "listen.open", "listen on 127.0.0.1, or give out a token: waldo token NAME",
			"listening beyond this machine needs auth")
	case p.openAt != nil && p.cfg.Gateway.URL == "":
		p.Fail(p.openAt, "listen.name", "add url, as in https://waldo.example.com/mcp",
			"listening beyond this machine needs the name that clients use")
	}
	if keep := p.cfg.Log.Keep; keep > 0 && keep < p.cfg.Approval.Timeout { // the log says which approvals are used up
		p.against(p.keepAt, "log.keep", "keep it at least as long as approval.timeout",
			"the log would be removed while an approval in it can still be used")
	}
	if w := p.cfg.Workers; w != nil && !strings.HasPrefix(p.cfg.Store, "postgres") {
		p.against(w.At, "workers.store", `as in store: {url: "postgres://waldo@db.example.com/waldo"}`,
			"workers needs a store in PostgreSQL: runs reach the workers through it")
	}
}

func (p *parser) against(at contract.Position, code, hint, text string) {
	p.Problems = append(p.Problems, contract.Problem{At: at, Code: code, Text: text, Hint: hint})
}

func (p *parser) checkKeys(c *contract.Contract) {
	if at, ok := c.Keys["danger"]; ok && c.Danger < c.Mode.Danger() {
		p.against(at, "danger.lowered", "raise it, or write another mode",
			"danger is below what mode "+c.Mode.String()+" implies")
	}
	if at, ok := c.Keys["retry"]; ok && c.Mode != contract.Read && c.Idempotency.Argument == "" && c.Settle.By == "" {
		p.against(at, "retry.unsafe", "write mode: read, if it changes nothing; else idempotency: {argument: NAME}, or settle",
			"a second try of a write can act twice")
	}
	if at, ok := c.Keys["tool"]; ok && !contract.Pattern(c.Pattern).Exact() {
		p.against(at, "key.misplaced", "name the capability in full",
			"tool under a pattern would give many capabilities one tool")
	}
	if c.Hold && !call.RunsScript(call.Capability(c.Pattern)) {
		p.against(c.Keys["writes"], "key.misplaced", "name run_python, run_javascript or run_typescript",
			"writes: hold needs a capability whose code calls tools")
	}
	for key, belongs := range belongsTo {
		if at, ok := c.Keys[key]; ok && c.Transport != "" && !slices.Contains(belongs, c.Transport) {
			p.against(at, "key.misplaced", "", key+" does not apply to transport "+string(c.Transport))
		}
	}
}

// belongsTo names the keys that mean something with some transports only.
var belongsTo = map[string][]contract.Transport{
	"isolation":  {contract.SandboxedExec, contract.MCP},
	"packages":   {contract.SandboxedExec},
	"reveal":     {contract.SandboxedExec},
	"template":   {contract.SandboxedExec},
	"limits":     {contract.SandboxedExec},
	"input":      {contract.SandboxedExec},
	"env":        {contract.SandboxedExec},
	"filesystem": {contract.SandboxedExec, contract.Direct},
	"allow":      {contract.SandboxedExec, contract.Direct},
	"root":       {contract.Direct},
	"url":        {contract.Direct},
	"server":     {contract.MCP, contract.A2A},
	"tool":       {contract.MCP, contract.A2A},
	"retry":      {contract.MCP, contract.A2A},
}

// checkRules refuses rules that can never change a decision.
func (p *parser) checkRules(c *contract.Contract) {
	base := max(c.Danger, c.Mode.Danger())
	for i, r := range c.Rules {
		if !r.Deny && r.Danger <= base {
			p.against(r.When.At, "rule.useless", "a rule only raises: write a higher level, or deny: true",
				"this rule changes nothing: the capability is at that level already")
		}
		for _, before := range c.Rules[:i] {
			if shadows(before, r) {
				p.against(r.When.At, "rule.shadowed", "remove one of them",
					"the rule on line "+strconv.Itoa(before.When.At.Line)+" always decides first")
				break
			}
		}
	}
}

// shadows reports whether b can change nothing that a has not: a holds wherever b does, as far as
// the text shows, and does at least as much.
func shadows(a, b contract.Rule) bool {
	always := squeeze(a.When.Source) == "true"
	same := squeeze(a.When.Source) == squeeze(b.When.Source)
	return (always || same) && (a.Deny || !b.Deny && a.Danger >= b.Danger)
}

// squeeze takes the spaces out of an expression that has no text in quotes.
func squeeze(s string) string {
	if strings.ContainsAny(s, `"'`) {
		return strings.TrimSpace(s)
	}
	return strings.Join(strings.Fields(s), "")
}

func (p *parser) checkExamples(c *contract.Contract) {
	for i := range c.Examples {
		x := &c.Examples[i]
		if x.Capability == "" && contract.Pattern(c.Pattern).Exact() {
			x.Capability = c.Pattern
		}
		switch {
		case x.Capability == "":
			p.against(x.At, "key.missing", "write capability: the name that is called",
				"an example of a pattern needs the name of a capability")
		case !contract.Name(x.Capability) || !contract.Pattern(c.Pattern).Match(x.Capability):
			p.against(x.At, "example.elsewhere", "",
				"the example calls "+contract.Cut(x.Capability, 40)+", which this entry does not match")
		}
	}
}

// complete fills in the defaults, and warns of names without a definition: calls through them are denied.
func (p *parser) complete() {
	for i := range p.cfg.Contracts {
		c := &p.cfg.Contracts[i]
		c.Danger = max(c.Danger, c.Mode.Danger())
		if c.Redact == nil {
			c.Redact = p.cfg.Redaction.Model
		}
		c.Isolation = levelOf(c)
		completeRun(c)
		p.warnUnbound(c)
	}
	p.warnEnvironments()
	p.warnUnused()
	p.warnPeople()
	p.warnTenants()
	for _, w := range p.cfg.Webhooks {
		if tool := w.Deliver.Tool; tool != "" && !slices.ContainsFunc(p.cfg.Contracts, func(c contract.Contract) bool {
			return !c.Denied && contract.Pattern(c.Pattern).Match(tool)
		}) {
			p.Warn(w.At, "webhook.denied", "write a capability "+tool, "no contract allows %q: its calls are denied", tool)
		}
	}
	for _, s := range p.cfg.SecretUses {
		if !hasSource(p.cfg, s.Ref) {
			p.Warn(s.At, "secret.unbound", "`waldo secret set "+string(s.Ref)+"` defines it",
				"secret %q is not defined here: calls that need it are denied until it is", s.Ref)
		}
	}
}

// levelOf returns the level that a contract asks for, by name or by its class.
func levelOf(c *contract.Contract) string {
	switch {
	case c.Isolation != "auto":
		return c.Isolation
	case c.Mode == contract.HighRisk:
		return "gvisor"
	}
	return contract.UsualIsolation
}

// isolate gives a server's sandbox its level: with auto, that of the classes of its capabilities.
func (p *parser) isolate(s *contract.Server) {
	if s.Placement == "outside" || s.URL != "" {
		return
	}
	auto := s.Isolation == "auto"
	if s.Isolation = cmp.Or(s.Isolation, "namespace"); auto {
		s.Isolation = "namespace"
		for _, c := range p.cfg.Contracts {
			of := c.Resolve(representative(c.Pattern), p.cfg)
			if !c.Denied && of.Server == s.Name && c.Mode == contract.HighRisk {
				s.Isolation = "gvisor"
			}
		}
	}
	lasting := s.Data != "" || slices.ContainsFunc(s.Mounts, func(m contract.Mount) bool { return m.Writable })
	if s.Isolation == "gvisor" && (lasting || s.Placement == "workspace") {
		p.against(s.At, "key.misplaced", "write isolation: namespace; or placement: sandbox without data and writable mounts",
			"server "+s.Name+" would be in a sandbox of gvisor, which has no writable folders and no files of a session")
	}
}

func (p *parser) warnUnbound(c *contract.Contract) {
	if c.Denied {
		return // calls are denied in any case
	}
	r := c.Resolve(representative(c.Pattern), p.cfg)
	_, known := p.cfg.Servers[r.Server]
	first, _, _ := strings.Cut(c.Pattern, ".")
	at := c.At
	if k, ok := c.Keys["server"]; ok {
		at = k
	}
	switch {
	case contract.ByTheGateway(c.Pattern) && c.Server == "" && c.Tool == "": // with these policy.New refuses it
		p.Warn(c.At, "contract.useless", "leave it out",
			"the gateway answers %q itself: this contract changes nothing", c.Pattern)
	case r.Transport == "" && contract.Pattern(c.Pattern).Exact():
		p.Warn(c.At, "transport.absent", "write transport",
			"%q says no transport, and no server has its name: calls are denied", c.Pattern)
	case c.Server == "" && strings.Contains(first, "*"): // any server that there is
	case r.Transport == contract.MCP && !known && (r.Server != "" || contract.Pattern(c.Pattern).Exact()):
		name := r.Server
		if name == "" {
			name, _, _ = strings.Cut(c.Pattern, ".")
		}
		p.Warn(at, "server.unbound", "define it under servers, or name another with server",
			"no server stands behind %q: calls are denied", name)
	}
	if by := c.Approval.By; by != "" && len(p.cfg.Approval.Roles[by]) == 0 {
		p.Warn(c.Approval.At, "role.unbound", "define it under approval: {by: …}",
			"no approver has the role %q: calls that need its answer are denied", by)
	}
}

// reach refuses a network or secrets of a capability that are less than its server has. The tools of a server share its
// process, so that a smaller reach of one of them cannot be held.
func (p *parser) reach(c *contract.Contract) {
	r := c.Resolve(representative(c.Pattern), p.cfg)
	server, known := p.cfg.Servers[r.Server]
	if c.Denied || !known || r.Transport != contract.MCP {
		return
	}
	fail := func(key, hint, format string, a ...any) {
		p.against(c.Keys[key], "reach.unheld", hint,
			fmt.Sprintf("%q cannot be held to its %s: ", c.Pattern, key)+fmt.Sprintf(format, a...))
	}
	if _, written := c.Keys["isolation"]; written && !server.Holds(levelOf(c)) {
		fail("isolation", "write isolation: gvisor under the server, and namespace or gvisor here",
			"the tools of server %q share one sandbox, of isolation %s", server.Name, cmp.Or(server.Isolation, "none"))
	}
	if _, written := c.Keys["network"]; written {
		if server.Placement == "outside" {
			fail("network", "write placement: sandbox under the server, or leave network out",
				"server %q runs outside of any sandbox", server.Name)
		} else if host := beyond(server.Network, c.Network, p.cfg.Internal); host != "" {
			fail("network", "write at least the network of the server; or define a second server with less",
				"the tools of server %q share one sandbox, which reaches %s", server.Name, host)
		}
	}
	if _, written := c.Keys["secrets"]; written {
		named := slices.Collect(maps.Values(c.Secrets))
		for _, ref := range c.Secrets {
			named = append(named, p.cfg.Secrets[string(ref)].Spec.From) // the same secret by its place
		}
		for _, variable := range slices.Sorted(maps.Keys(server.Secrets)) {
			if !slices.Contains(named, server.Secrets[variable]) {
				fail("secrets", "name the secrets of the server; or define a second server with less",
					"the tools of server %q share one process, which has the secret %s", server.Name, variable)
				return
			}
		}
	}
}

// beyond returns a host that a server reaches and a contract's network does not name; "": there is none.
func beyond(server, c contract.Network, internal []string) string {
	all, allowed := slices.Clone(server.Allow), slices.Clone(c.Allow)
	if c.Internal {
		allowed = append(allowed, internal...)
	}
	if server.Internal && !c.Internal {
		all = append(all, internal...)
	}
	for _, host := range all {
		if !slices.Contains(allowed, host) {
			return host
		}
	}
	return ""
}

// warnEnvironments warns of environments that one contract names and nothing else knows: a slip, or a place
// that is not there. One that a secret or another contract names too is known.
func (p *parser) warnEnvironments() {
	times := map[string]int{}
	for _, name := range p.known {
		times[name] += 2
	}
	for _, c := range p.cfg.Contracts {
		for _, name := range c.Environments {
			times[name]++
		}
	}
	for _, s := range p.cfg.Secrets {
		for name := range s.In {
			times[name]++
		}
	}
	names := slices.Sorted(maps.Keys(times))
	if times[p.selected] == 2 { // known by the selection alone
		others := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == p.selected })
		hint := display.Meant(p.selected, others)
		if hint == "" {
			hint = "name it in environments: of a contract, or select another"
		}
		p.Warn(contract.Position{File: p.File, Line: 1, Column: 1}, "environment.selected", hint,
			"nothing in this file names the selected environment %s", p.selected)
	}
	for _, c := range p.cfg.Contracts {
		for _, name := range c.Environments {
			if times[name] > 1 {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == name })
			hint := display.Meant(name, others)
			if hint == "" {
				hint = "select it with --environment " + name + " or $WALDO_ENVIRONMENT, if there is such a place"
			}
			p.Warn(c.Keys["environments"], "environment.unknown", hint, "environment %q is named here and nowhere else", name)
		}
	}
}

// warnUnused warns of servers that no entry reaches: their tools are hidden and refused.
func (p *parser) warnUnused() {
	for name, s := range p.cfg.Servers {
		reached := slices.ContainsFunc(p.cfg.Contracts, func(c contract.Contract) bool {
			return c.Server == name || strings.HasPrefix(c.Pattern, name+".") ||
				c.Server == "" && contract.Pattern(c.Pattern).Match(name+".x")
		})
		if !reached {
			p.Warn(s.At, "server.unused", "write a capability "+name+".*",
				"no contract names the tools of server %q: they are hidden and refused", name)
		}
	}
}

// warnPeople warns where waldo cannot know that an approver asked: the subjects of issuers are seldom approvers' names.
func (p *parser) warnPeople() {
	asks := func(c contract.Contract) bool { return !c.Denied && c.Approval.When != contract.Never }
	if p.cfg.Gateway.Issues() && len(p.cfg.Approval.People) == 0 && slices.ContainsFunc(p.cfg.Contracts, asks) {
		p.Warn(contract.Position{File: p.File, Line: 1, Column: 1}, "people.absent",
			`as in approval: {people: {alice: ["oidc:alice@corp.example"]}}`,
			"people log in by OpenID Connect, and no line says which approver is whom: they could approve their own calls")
	}
}

// representative is a name that the pattern matches.
func representative(pattern string) string { return strings.ReplaceAll(pattern, "*", "x") }

// completeRun makes processor time fit a time limit that was written.
func completeRun(c *contract.Contract) {
	if _, written := c.Keys["timeout_seconds"]; written && c.Run.CPU == 0 && c.Timeout > defaultCPU {
		c.Run.CPU = c.Timeout
	}
}

// defaultCPU is the processor time of a run whose contract names none.
const defaultCPU = 10 * time.Second
