package contract

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/model/hostrule"
)

// ManagerForHighPriority is the condition of the shorthand manager_for_high_priority. It ignores letter case and
// surrounding spaces. An absent priority, or one that is not text, requires approval.
const ManagerForHighPriority = "args.priority.trim().lowerAscii() == 'high'"

// entry parses one entry of capabilities. A missing key takes its strictest value.
func (p *parser) entry(e field) {
	c := Contract{Pattern: e.name, At: p.at(e.key), Keys: map[string]Position{}}
	if text, hint := Pattern(e.name).problem(); text != "" {
		p.fail(e.key, "value.name", hint, "%s: %q", text, cut(e.name, 40))
	}
	c.Isolation, c.Timeout, c.ResponseBudget = "auto", 30*time.Second, 64<<10
	c.Log, c.Trust, c.Approval.At = "full", "untrusted", c.At
	if e.val.Kind == yaml.ScalarNode {
		c.Denied = p.denied(e)
		p.cfg.Contracts = append(p.cfg.Contracts, c)
		return
	}
	p.meansDeny(e)
	for _, f := range p.fields(e.val, inEntry) {
		c.Keys[f.name] = p.at(f.key)
		p.reach(&c, f)
		p.equip(&c, f)
		p.limits(&c, f)
		p.judgement(&c, f)
	}
	p.cfg.Contracts = append(p.cfg.Contracts, c)
}

// denied reads the one word that can be a whole contract: deny.
func (p *parser) denied(e field) bool {
	if e.val.Tag == "!!str" && e.val.Value == "deny" {
		return true
	}
	p.fail(e.val, "value.type", "write a mapping, as in {mode: read, approval: none}, or "+denyLine(e.name),
		"a capability wants a mapping or the word deny, not %s", kind(e.val))
	return false
}

// denyLine is the line that denies a capability.
func denyLine(name string) string { return cut(name, 40) + ": deny" }

// meansDeny reports keys by which people write "deny every call", and names the line that does.
func (p *parser) meansDeny(e field) {
	line := "to deny every call, write " + denyLine(e.name)
	for i := 0; i+1 < len(e.val.Content) && e.val.Kind == yaml.MappingNode; i += 2 {
		k, v := e.val.Content[i], e.val.Content[i+1]
		switch {
		case k.Value == "deny":
			p.hints[k] = line
		case k.Value == "mode" && (v.Value == "deny" || v.Value == "denied" || v.Value == "never"):
			p.hints[v] = line
		case k.Value == "approval" && (v.Value == "never" || v.Value == "deny" || v.Value == "denied"):
			p.hints[v] = line + "; to ask nobody, write approval: none"
		case k.Value == "rules" && v.Kind == yaml.SequenceNode:
			for _, r := range v.Content {
				p.hints[r] = `as in {when: "args.public == true", danger: 3}; ` + line
			}
		}
	}
}

// reach parses the keys of a capability's transport and access.
func (p *parser) reach(c *Contract, f field) {
	switch f.name {
	case "transport":
		c.Transport = Transport(p.word(f, inEntry))
	case "mode":
		c.Mode = modes[p.word(f, inEntry)]
	case "danger":
		c.Danger = p.integer(f, 1, 3)
	case "isolation":
		c.Isolation = p.word(f, inEntry)
	case "server":
		c.Server = p.label(f)
	case "tool":
		c.Tool = p.text(f)
	case "network":
		packages := c.Network.Packages
		c.Network = p.network(f, inEntry)
		c.Network.Packages = packages
	case "packages":
		c.Network.Packages = p.packages(f)
	case "filesystem":
		if p.word(f, inEntry) == "workspace_only" {
			c.Filesystem = WorkspaceOnly
		}
	case "root":
		c.Root = p.text(f)
	case "allow":
		c.Programs = p.texts(f)
	case "secrets":
		c.Secrets = p.entrySecrets(f, c.Pattern)
	case "reveal":
		c.Reveal = p.texts(f)
	case "environments":
		c.Environments = p.texts(f)
	}
}

var modes = map[string]Mode{"read": Read, "write": Write, "high_risk": HighRisk}

// limits reads the keys that bound one call or many.
func (p *parser) limits(c *Contract, f field) {
	switch f.name {
	case "timeout_seconds":
		c.Timeout = time.Duration(p.integer(f, 1, 24*3600)) * time.Second
	case "retry":
		c.Retry = p.retry(f)
	case "rate_limit":
		c.RateLimit = p.rate(f)
	case "concurrency":
		c.Concurrency = p.integer(f, 1, 10_000)
	case "response_budget_bytes":
		c.ResponseBudget = p.integer(f, 1, 16<<20)
	}
}

// judgement parses the keys of the decision, its log record and its redaction.
func (p *parser) judgement(c *Contract, f field) {
	switch f.name {
	case "approval":
		c.Approval = p.approval(f)
	case "rules":
		c.Rules = p.rules(f)
	case "log":
		c.Log = p.word(f, inEntry)
	case "redact":
		c.Redact = p.redact(f)
	case "trust":
		c.Trust = p.word(f, inEntry)
	case "examples":
		c.Examples = p.examples(f)
	}
}

func (p *parser) network(f field, scope string) Network {
	if f.val.Kind == yaml.MappingNode {
		var n Network
		for _, g := range p.fields(f.val, inNetwork) {
			switch g.name {
			case "allow":
				n.Allow = p.hosts(g)
			case "limits":
				n.Limits = p.traffic(g)
			}
		}
		return n
	}
	return Network{Internal: p.word(f, scope) == "internal_only"}
}

func (p *parser) traffic(f field) (t Traffic) {
	for _, g := range p.fields(f.val, inTraffic) {
		switch g.name {
		case "bytes":
			t.Bytes = p.integer(g, 1, 1<<50)
		case "bytes_per_second":
			t.BytesPerSecond = p.integer(g, 1<<10, 1<<40)
		case "requests_per_second":
			t.RequestsPerSecond = p.integer(g, 1, 1_000_000)
		case "connections":
			t.Connections = p.integer(g, 1, 10_000)
		}
	}
	return t
}

// hosts reads a list of hosts that may be reached.
func (p *parser) hosts(f field) []string {
	lines := p.texts(f)
	for i, h := range lines {
		if h == "" {
			continue
		}
		l, sound := hostLine(h)
		if !sound {
			p.fail(f.val.Content[i], "value.host", "as in api.example.com, *.example.com, db.example.com:5432 or GET api.example.com/v1/*", "%q is not the name of a host", cut(h, 40))
			continue
		}
		if wide := wideHosts[l.Host.Warning(nil)]; wide != "" {
			p.warn(p.at(f.val.Content[i]), "host.wide", "name the host itself, as in mine"+l.Host.String()[1:], "%q lets out %s", cut(h, 60), wide)
		}
	}
	return lines
}

// hostLine reads a line of hosts as egress will read it. A configuration names hosts in lower case, and
// neither addresses nor the ports that waldo serves itself.
func hostLine(s string) (hostrule.Line, bool) {
	l, err := hostrule.Parse(s)
	_, rest, asks := strings.Cut(s, " ")
	if !asks {
		rest = s
	}
	return l, err == nil && hostPattern(l.Host.String()) && strings.HasPrefix(rest, l.Host.String()) && l.Port != 53 && l.Port != 3128
}

// hostPattern reports whether s is a host in lower case, perhaps with "*." before it, and no address.
func hostPattern(s string) bool {
	h, err := hostrule.ParsePattern(s)
	return err == nil && h.Name != "" && h.Name != "localhost" && h.String() == s
}

// wideHosts says what a host that many share lets out.
var wideHosts = map[string]string{"public suffix": "every site whose name ends so", "shared suffix": "sites of strangers: anybody can have a name below it"}

func (p *parser) retry(f field) Retry {
	var r Retry
	for _, g := range p.fields(f.val, inRetry) {
		switch g.name {
		case "max":
			r.Max = p.integer(g, 1, 5)
		case "on":
			r.On = p.words(g, inRetry)
		}
	}
	if r.Max == 0 {
		p.fail(f.key, "key.missing", "write max: 1 to 5", "retry needs max")
	}
	if r.On == nil {
		r.On = []string{"unavailable"}
	}
	return r
}

var windows = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

func (p *parser) rate(f field) Rate {
	var r Rate
	for _, g := range p.fields(f.val, inRate) {
		switch g.name {
		case "calls":
			r.Calls = p.integer(g, 1, 1_000_000)
		case "per":
			if r.Per = windows[g.val.Value]; r.Per == 0 {
				r.Per = p.duration(g, 24*time.Hour)
			}
		}
	}
	if r.Calls == 0 || r.Per == 0 {
		p.fail(f.key, "key.missing", "as in {calls: 10, per: minute}", "rate_limit needs calls and per")
		return Rate{}
	}
	return r
}

func (p *parser) approval(f field) Approval {
	a := Approval{At: p.at(f.key)}
	if f.val.Kind != yaml.MappingNode {
		switch p.word(f, inEntry) {
		case "none":
			a.When = Never
		case "manager_for_high_priority":
			a = Approval{When: If, Condition: &Condition{ManagerForHighPriority, p.at(f.val)}, By: "manager", At: a.At}
		}
		return a
	}
	for _, g := range p.fields(f.val, inApproval) {
		switch g.name {
		case "when":
			a.When, a.Condition = If, &Condition{p.text(g), p.at(g.val)}
		case "by":
			a.By = p.label(g)
		}
	}
	if len(f.val.Content) == 0 {
		p.fail(f.val, "value.empty", "write always, or when and by", "approval says nothing")
	}
	return a
}

func (p *parser) rules(f field) []Rule {
	var out []Rule
	if f.val.Kind != yaml.SequenceNode || len(f.val.Content) == 0 {
		p.fail(f.val, "value.type", `as in [{when: "args.public == true", danger: 3}]`, "%q wants a list of rules, not %s", f.name, kind(f.val))
		return nil
	}
	for _, n := range f.val.Content {
		var r Rule
		r.When.At = p.at(n)
		for _, g := range p.fields(n, inRule) {
			switch g.name {
			case "when":
				r.When = Condition{p.text(g), p.at(g.val)}
			case "danger":
				r.Danger = p.integer(g, 1, 3)
			case "deny":
				r.Deny = p.boolean(g)
			case "reason":
				r.Reason = p.text(g)
			}
		}
		if r.When.Source == "" || r.Deny == (r.Danger != 0) {
			p.fail(n, "key.missing", `as in {when: "args.public == true", danger: 3}`, "a rule needs when, and either danger or deny: true")
		}
		out = append(out, r)
	}
	return out
}

func (p *parser) redact(f field) []string {
	if f.val.Kind == yaml.ScalarNode && f.val.Value == "none" {
		return []string{"secrets"}
	}
	return withSecrets(p.words(f, inEntry))
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

func (p *parser) examples(f field) []Example {
	var out []Example
	if f.val.Kind != yaml.SequenceNode || len(f.val.Content) == 0 {
		p.fail(f.val, "value.type", "as in [{args: {id: 1}, expect: allow}]", "%q wants a list of examples, not %s", f.name, kind(f.val))
		return nil
	}
	for _, n := range f.val.Content {
		x := Example{At: p.at(n)}
		for _, g := range p.fields(n, inExample) {
			switch g.name {
			case "args":
				if m, ok := p.plain(g.val).(map[string]any); ok {
					x.Args = m
				} else {
					p.fail(g.val, "value.type", "", "args wants a mapping, not %s", kind(g.val))
				}
			case "expect":
				x.Expect = p.word(g, inExample)
			case "capability":
				x.Capability = p.text(g)
			}
		}
		if x.Expect == "" {
			p.fail(n, "key.missing", "write expect: allow, ask or deny", "an example needs expect")
		}
		out = append(out, x)
	}
	return out
}
