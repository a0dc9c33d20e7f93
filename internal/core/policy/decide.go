package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// Decide says deny, ask or allow, and why. The reasons for the effect come first. It has no side effect and reads
// nothing but the call and the policy. Annotations of the tool make it stricter. A call whose caller saw no
// definition of the tool stays as the contract decides it: the executor refuses it.
func (p *Policy) Decide(c call.Call) Decision {
	d := p.decide(c, false)
	if d.Effect == Deny || d.Contract.Transport != contract.MCP || c.ToolDigest == "" {
		return d
	}
	return Tighten(d, c.Annotations)
}

// Usable reports whether some call of the capability is allowed or asked about for a principal. It is false only if
// all calls are denied, for any arguments. Other principals need not learn of the capability.
func (p *Policy) Usable(name call.Capability, who call.Principal, channel string) bool {
	return p.decide(call.Call{Capability: name, Principal: who, Channel: channel}, true).Effect != Deny
}

// Reaches reports whether a principal can use any tool of a server, for any tool names. It is false only if every
// contract that can match one denies each call. Then the server's name stays hidden.
func (p *Policy) Reaches(server string, who call.Principal, channel string) bool {
	all := contract.Pattern(server + ".*")
	for name, e := range p.exact {
		if e[0].contract.Resolve(name, p.cfg).Server == server && p.Usable(call.Capability(name), who, channel) {
			return true
		}
	}
	return slices.ContainsFunc(p.patterns, func(e *entry) bool {
		c := contract.Pattern(e.contract.Pattern)
		of := e.contract.Server
		if of == "" && c.Meets(all) {
			of = server
		}
		return of == server && p.judge(e, call.Call{Capability: call.Capability(all), Principal: who, Channel: channel},
			true).Effect != Deny &&
			!slices.ContainsFunc(p.patterns, func(o *entry) bool { // which decides in its place
				q := contract.Pattern(o.contract.Pattern)
				return q.Covers(all) && q.Beats(c)
			})
	})
}

// ReadsArguments reports whether the decision on a capability can depend on the arguments of a call. If not, calls
// whose arguments are not known can be decided.
func (p *Policy) ReadsArguments(name call.Capability) bool {
	return slices.ContainsFunc(p.winners(string(name)), func(e *entry) bool {
		reads := func(c *condition) bool { return c.args }
		return !e.contract.Denied && (e.approval != nil && e.approval.args || slices.ContainsFunc(e.rules, reads))
	})
}

// Names returns the capabilities under which contracts know a server's tool. These are its own name, unless a
// contract has given that to another tool, and those of contracts that set server or tool.
func (p *Policy) Names(server, tool string) []call.Capability {
	is := func(name string) (one, spoken bool) {
		c, ok := p.Lookup(call.Capability(name))
		return ok && c.Transport == contract.MCP && c.Server == server && c.Tool == tool, ok
	}
	var names []call.Capability
	own := server + "." + tool
	if one, spoken := is(own); one || !spoken {
		names = append(names, call.Capability(own))
	}
	for _, e := range p.renamed {
		name := e.contract.Pattern
		if !contract.Pattern(name).Exact() {
			first, _, _ := strings.Cut(name, ".")
			name = first + "." + tool
		}
		if one, _ := is(name); one && !slices.Contains(names, call.Capability(name)) {
			names = append(names, call.Capability(name))
		}
	}
	return names
}

// decide is Decide; open where the call is not made yet, so that what it denies is denied for all calls.
func (p *Policy) decide(c call.Call, open bool) Decision {
	if !contract.Name(string(c.Capability)) {
		return p.deny(c, call.Reason{Code: "capability.malformed", Text: "this is not the name of a capability"})
	}
	if !p.ideal && !p.cfg.Gateway.Tenants.Holds(c.Principal) {
		return p.deny(c, call.Reason{Code: "tenant.absent", Text: "the configuration gives this principal no tenant",
			File: p.cfg.File})
	}
	winners := p.winners(string(c.Capability))
	if len(winners) == 0 {
		return p.deny(c, call.Reason{Code: "contract.absent", Text: "no contract names this capability", File: p.cfg.File})
	}
	d := p.judge(winners[0], c, open)
	for _, e := range winners[1:] { // patterns of equal specificity
		other := p.judge(e, c, open)
		confirm, witness := d.Contract.Confirm || other.Contract.Confirm, d.Contract.Witness || other.Contract.Witness
		if stricter(other, d) {
			d = other
		}
		d.Contract.Confirm, d.Contract.Witness = confirm, witness
	}
	return d
}

// Explain returns the decision on a call as a dry run, which can never be executed. The server's annotations count as
// the operator accepted them. A note says if they are not recorded.
func (p *Policy) Explain(c call.Call) Decision {
	d, known := p.annotated(p.decide(c, false))
	server := d.Contract.Server
	if !known && p.machine.Pinned != nil && p.machine.Pinned(server) {
		why := reasonAt("lock.new", "waldo.lock does not have this tool: it is denied until it is accepted, if the server has it",
			d.Contract.At)
		d.Effect, d.Reasons = Deny, append([]call.Reason{why}, d.Reasons...)
	} else if !known {
		why := reasonAt("annotation.unknown",
			"waldo.lock does not have this tool: if the server marks it destructive, a human is asked", d.Contract.At)
		d.Reasons = append(d.Reasons[:len(d.Reasons):len(d.Reasons)], why)
	}
	d.DryRun = true
	return d
}

// annotated makes a decision stricter by the recorded annotations of the tool. It reports false where the
// call would reach a server's tool of which none are recorded.
func (p *Policy) annotated(d Decision) (_ Decision, known bool) {
	if d.Effect == Deny || d.Contract.Transport != contract.MCP {
		return d, true
	}
	if p.machine.Annotations == nil {
		return d, false
	}
	v, known := p.machine.Annotations(d.Contract.Server, d.Contract.Tool)
	return Tighten(d, v), known
}

// Visible reports whether an agent can know of the capability. It needs a contract that applies in this environment,
// and no contract in force with NAME: deny.
func (p *Policy) Visible(name call.Capability) bool {
	c, ok := p.Lookup(name)
	denied := func(e *entry) bool { return e.contract.Denied }
	return ok && p.inEnvironment(c) && !slices.ContainsFunc(p.winners(string(name)), denied)
}

// Lookup returns the contract in force for a capability, completed by its name. If patterns tie, the strictest class
// wins, for any arguments.
func (p *Policy) Lookup(name call.Capability) (contract.Contract, bool) {
	if !contract.Name(string(name)) {
		return contract.Contract{}, false
	}
	winners := p.winners(string(name))
	if len(winners) == 0 {
		return contract.Contract{}, false
	}
	best := slices.MaxFunc(winners, func(a, b *entry) int {
		if a.contract.Danger != b.contract.Danger {
			return a.contract.Danger - b.contract.Danger
		}
		return b.order - a.order
	})
	c := best.contract.Resolve(string(name), p.cfg)
	c.Confirm = slices.ContainsFunc(winners, func(e *entry) bool { return e.contract.Confirm })
	return c, true
}

func (p *Policy) deny(c call.Call, why call.Reason) Decision {
	return Decision{Effect: Deny, Reasons: []call.Reason{why}, Call: c, Danger: 3, Policy: p.digest}
}

// winners returns the most specific entries for a name: one, or several patterns of which each
// matches names that the others do not.
func (p *Policy) winners(name string) []*entry {
	if e := p.exact[name]; e != nil {
		return e
	}
	var match []*entry
	for _, e := range p.patterns {
		if contract.Pattern(e.contract.Pattern).Match(name) {
			match = append(match, e)
		}
	}
	if len(match) < 2 {
		return match
	}
	return slices.DeleteFunc(slices.Clone(match), func(e *entry) bool {
		return slices.ContainsFunc(match, func(o *entry) bool {
			return contract.Pattern(o.contract.Pattern).Beats(contract.Pattern(e.contract.Pattern))
		})
	})
}

// stricter reports whether a is to be preferred to b: the lesser effect, then the higher danger,
// then the stricter mode. Otherwise the earlier line stays.
func stricter(a, b Decision) bool {
	switch {
	case a.Effect != b.Effect:
		return a.Effect < b.Effect
	case a.Danger != b.Danger:
		return a.Danger > b.Danger
	}
	return a.Contract.Mode < b.Contract.Mode
}

// Stricter joins the decisions on a call as it was written and with the values of its tokens. The call stays as it was
// written. A reason states if the values made the decision stricter.
func Stricter(written, meant Decision) Decision {
	return Join(written, meant, reasonAt("token.value",
		"the contract was applied to the values that tokens in the arguments stand for", meant.Contract.At))
}

// judge decides by one entry alone.
func (p *Policy) judge(e *entry, c call.Call, open bool) Decision {
	j := judgement{c: e.contract.Resolve(string(c.Capability), p.cfg)}
	if j.c.Denied {
		return Decision{Effect: Deny,
			Reasons: []call.Reason{j.reason("contract.deny", "the contract denies this capability", "")},
			Call:    c, Contract: j.c, Danger: 3, Policy: p.digest}
	}
	p.reachable(&j, c.Channel)
	p.tenant(&j, c.Principal)
	j.danger = j.c.Danger
	j.own(c, e.contract)
	j.public(c)
	if !open && p.machine.Judge != nil {
		j.judged(p.machine.Judge(c, j.c))
	}
	seen := &variables{call: &c, environment: p.cfg.Environment, danger: j.danger, open: open}
	j.rules(e, seen)
	j.approval(e, seen)
	if j.c.Witness {
		j.notes = append(j.notes, j.reason("witness.required",
			"the witnesses of log.policy must cosign the log before the call acts", "witness"))
	}
	if by := j.c.Approval.By; len(j.asks) > 0 && by != "" && len(p.cfg.Approval.Roles[by]) == 0 && !p.ideal {
		j.denies = append(j.denies, j.reason("role.unbound", "no approver has the role that can answer: "+by, "approval"))
	}
	d := Decision{Call: c, Contract: j.c, Danger: j.danger, Policy: p.digest}
	d.Effect = j.effect()
	d.Reasons = slices.Concat(j.denies, j.asks, j.notes)
	return d
}

// judgement gathers the reasons to deny, the reasons to ask, and the notes.
type judgement struct {
	c                   contract.Contract
	danger              int
	denies, asks, notes []call.Reason
}

func (j *judgement) effect() Effect {
	switch {
	case len(j.denies) > 0:
		return Deny
	case len(j.asks) > 0:
		return Ask
	}
	return Allow
}

// reason makes a reason at the line of a key, or of the entry where the key is not written.
func (j *judgement) reason(code, text, key string) call.Reason {
	at, ok := j.c.Keys[key]
	if !ok {
		at = j.c.At
	}
	return reasonAt(code, text, at)
}

func reasonAt(code, text string, at contract.Position) call.Reason {
	return call.Reason{Code: code, Text: text, File: at.File, Line: at.Line, Column: at.Column}
}

func (p *Policy) inEnvironment(c contract.Contract) bool {
	return len(c.Environments) == 0 || slices.Contains(c.Environments, p.cfg.Environment)
}

// reachable adds the reasons in this deployment that prevent the contract's call.
func (p *Policy) reachable(j *judgement, channel string) {
	deny := func(code, text, key string) { j.denies = append(j.denies, j.reason(code, text, key)) }
	if !p.ideal && !p.inEnvironment(j.c) {
		deny("environment.excluded", "not allowed in environment "+cmp.Or(p.cfg.Environment, "(none)"), "environments")
	}
	if j.c.Channel != "" && j.c.Channel != channel {
		deny("channel.denied", "this capability is for a command of a person, and for no agent", "")
	}
	if channel == call.A2A && !j.c.Expose {
		deny("a2a.unexposed", "the contract does not expose this capability to agents elsewhere: a2a: {expose: true}", "a2a")
	}
	if j.c.Transport == "" {
		deny("transport.absent", "the contract has no transport", "transport")
	}
	if p.ideal {
		return
	}
	if j.c.Transport != "" && !p.machine.Transports[j.c.Transport] {
		deny("transport.unavailable", "transport "+string(j.c.Transport)+" is not available here", "transport")
	}
	if _, bound := p.cfg.Servers[j.c.Server]; j.c.Transport == contract.MCP && !bound {
		deny("server.unbound", "no server of the configuration provides this capability", "server")
	}
	_, named := j.c.Keys["secrets"] // those of a server itself keep it from starting, when they are missing
	for _, ref := range j.c.Secrets {
		if j.c.Transport == contract.MCP && !named {
			continue
		}
		if _, ok := ref.Place(); !ok && !p.machine.Secrets[string(ref)] {
			deny("secret.unbound", "a secret that it needs is not defined: "+string(ref), "secrets")
		}
	}
	server := p.cfg.Servers[j.c.Server]
	if _, asked := j.c.Keys["isolation"]; asked && j.c.Transport == contract.MCP && !server.Holds(j.c.Isolation) {
		deny("isolation.server", "its server is in no sandbox of isolation "+j.c.Isolation+", which the contract asks for",
			"isolation")
	}
	if j.c.Transport == contract.SandboxedExec && !p.machine.Isolations[j.c.Isolation] {
		deny("isolation.unavailable", "this machine does not give isolation "+j.c.Isolation+
			", which the contract asks for by name or by its class", "isolation")
	}
}

// tenant adds the reasons by which a contract, its server or its secrets are not for the tenant of a principal.
func (p *Policy) tenant(j *judgement, who call.Principal) {
	if p.ideal || len(p.cfg.Gateway.Tenants) == 0 {
		return
	}
	deny := func(code, text, key string) { j.denies = append(j.denies, j.reason(code, text, key)) }
	if !contract.Includes(j.c.Tenants, who) {
		deny("tenant.excluded", "the contract does not name tenant "+who.Tenant(), "tenants")
	}
	server := p.cfg.Servers[j.c.Server]
	if len(server.Tenants) > 0 && !contract.Includes(server.Tenants, who) {
		deny("tenant.server", "its server is not for tenant "+who.Tenant(), "server")
	}
	needs := slices.AppendSeq([]secret.Ref{secret.Ref(j.c.Database), server.Auth.Bearer}, maps.Values(j.c.Secrets))
	needs = slices.AppendSeq(slices.AppendSeq(needs, maps.Values(server.Secrets)), maps.Values(server.Auth.Headers))
	if slices.ContainsFunc(needs, func(r secret.Ref) bool { return r != "" && p.cfg.Withholds(r, who) }) {
		deny("tenant.secret", "it needs a secret that is not for tenant "+who.Tenant(), "secrets")
	}
}

// own asks a human about a tool of waldo's own that is more dangerous than its contract says. An operator accepts
// danger 3 by writing it, in mode or danger.
func (j *judgement) own(c call.Call, written contract.Contract) {
	mode, ok := j.c.OwnMode(string(c.Capability))
	_, m := written.Keys["mode"]
	_, n := written.Keys["danger"]
	why := j.reason("tool.danger", "the tool itself has danger "+strconv.Itoa(mode.Danger()), "mode")
	switch accepted := written.Danger == 3 && (m || n); {
	case !ok || accepted:
	case mode.Danger() == 3:
		j.asks = append(j.asks, why)
	case mode.Danger() > written.Danger:
		j.notes = append(j.notes, why)
	}
}

// public asks a human about a run of a person that reaches every public host (--allow-network) where its contract does
// not. A written network without hosts, and a delegation, stay as they are: the runner refuses such a run.
func (j *judgement) public(c call.Call) {
	n := &j.c.Network
	_, written := j.c.Keys["network"]
	if c.Run == nil || !c.Run.Public || n.Public || written && !n.Reaches() || len(c.Chain) > 0 {
		return
	}
	n.Public, j.danger = true, 3
	j.asks = append(j.asks, j.reason("network.public", "the run reaches every public host, beyond its contract", "network"))
}

// judged takes the verdict on the arguments of one of waldo's own tools, as a rule of the contract would be.
func (j *judgement) judged(danger int, why *call.Reason) {
	if why == nil {
		return
	}
	at := j.reason(why.Code, why.Text, "")
	switch {
	case danger == 0:
		j.denies = append(j.denies, at)
	case danger > j.danger:
		j.danger = danger
		if danger < 3 {
			j.notes = append(j.notes, at)
		} else {
			j.asks = append(j.asks, at)
		}
	}
}

// rules raises the danger or refuses, by the arguments. A rule with an error applies.
func (j *judgement) rules(e *entry, v *variables) {
	for i, cond := range e.rules {
		rule := j.c.Rules[i]
		holds, err := cond.holds(v)
		if err != nil {
			holds = true // an error does not lift a rule
			j.notes = append(j.notes, reasonAt("rule.condition_error",
				"the condition could not be evaluated, so the rule applies", rule.When.At))
		}
		switch {
		case !holds:
		case rule.Deny:
			j.denies = append(j.denies, reasonAt("rule.deny", rule.Reason, rule.When.At))
		case rule.Danger > j.danger || rule.Danger == 3: // 3 is also of a rule for all capabilities
			j.danger = rule.Danger
			if rule.Danger < 3 {
				j.notes = append(j.notes, reasonAt("rule.danger", rule.Reason, rule.When.At))
			} else {
				j.asks = append(j.asks, reasonAt("rule.danger", rule.Reason, rule.When.At))
			}
		}
	}
}

// approval says whether a human is asked. Danger 3 asks, unless the contract was dangerous from the
// start and its operator wrote approval: none, or a condition, which decides.
func (j *judgement) approval(e *entry, v *variables) {
	j.notes = append(j.notes, j.reason("mode."+j.c.Mode.String(), "danger "+strconv.Itoa(j.danger), "mode"))
	a := j.c.Approval
	switch a.When {
	case contract.Never:
		j.notes = append(j.notes, reasonAt("approval.none", "the contract asks for no approval", a.At))
		return
	case contract.If:
		holds, err := e.approval.holds(v)
		switch {
		case err != nil:
			j.asks = append(j.asks, reasonAt("approval.condition_error",
				"the condition could not be evaluated, so approval is needed", a.Condition.At))
		case holds:
			j.asks = append(j.asks, reasonAt("approval.condition", "the condition is true: approval is needed", a.Condition.At))
		default:
			j.notes = append(j.notes, reasonAt("approval.clear", "the condition is false: no approval is needed",
				a.Condition.At))
		}
		return
	}
	if _, written := j.c.Keys["approval"]; !written {
		j.asks = append(j.asks, reasonAt("approval.default", "approval is not set: it defaults to always", a.At))
		return
	}
	j.asks = append(j.asks, reasonAt("approval.always", "the contract always asks for approval", a.At))
}
