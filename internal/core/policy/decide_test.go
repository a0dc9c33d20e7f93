package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/config"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// everything is a machine that has what these tests name.
var everything = Machine{
	Isolations: map[string]bool{"namespace": true, "gvisor": true},
	Transports: map[contract.Transport]bool{contract.Direct: true, contract.MCP: true, contract.SandboxedExec: true},
	Secrets:    map[string]bool{"service_account_helpdesk": true},
}

// compileText compiles the text of a waldo.yaml, which must be sound.
func compileText(t testing.TB, text string, m Machine) *Policy {
	t.Helper()
	cfg, problems := config.Parse("waldo.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, text)
	}
	p, err := New(cfg, m)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// ask makes a call with arguments as JSON.
func ask(t testing.TB, capability, args string) call.Call {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return call.Call{
		Capability: call.Capability(capability), Args: a, Channel: "mcp", Principal: "os:1000", Session: "n_1",
	}
}

// seed is section 7 of the first seed document, verbatim.
const seed = `capabilities:
  search_docs:
    transport: mcp
    mode: read
    network: internal_only
    secrets: none
    timeout_seconds: 8
    approval: none
  create_ticket:
    transport: mcp
    mode: write
    network: internal_only
    secrets: service_account_helpdesk
    timeout_seconds: 15
    approval: manager_for_high_priority
  run_shell:
    transport: sandboxed_exec
    mode: high_risk
    network: denied
    filesystem: workspace_only
    secrets: none
    timeout_seconds: 10
    approval: always
`

func TestSeedLoadsAsItStands(t *testing.T) {
	cfg, problems := config.Parse("waldo.yaml", []byte(seed))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var warned []string
	for _, w := range cfg.Warnings {
		warned = append(warned, fmt.Sprintf("%s:%d", w.Code, w.At.Line))
	}
	want := []string{"server.unbound:2", "server.unbound:9", "secret.unbound:13", "role.unbound:15"}
	if !slices.Equal(warned, want) {
		t.Errorf("warnings %v, want %v", warned, want)
	}
	noSecrets := everything
	noSecrets.Secrets = nil
	p := compileText(t, seed, noSecrets)
	for _, row := range []struct {
		capability, args string
		effect           Effect
		codes            []string
		line             int // of the first reason
	}{
		{"search_docs", `{}`, Deny, []string{"server.unbound", "mode.read", "approval.none"}, 2},
		{"create_ticket", `{"priority":"low"}`, Deny,
			[]string{"server.unbound", "secret.unbound", "mode.write", "approval.clear"}, 9},
		{"create_ticket", `{"priority":"high"}`, Deny,
			[]string{"server.unbound", "secret.unbound", "role.unbound", "approval.condition", "mode.write"}, 9},
		{"run_shell", `{"command":"ls"}`, Ask, []string{"approval.always", "mode.high_risk"}, 23},
		{"run_python", `{"code":"1"}`, Deny, []string{"contract.absent"}, 0},
		{"delete_ticket", `{}`, Deny, []string{"contract.absent"}, 0},
	} {
		check(t, p, ask(t, row.capability, row.args), row.effect, row.codes, row.line)
	}
}

func check(t *testing.T, p *Policy, c call.Call, effect Effect, codes []string, line int) {
	t.Helper()
	d := p.Decide(c)
	var got []string
	for _, r := range d.Reasons {
		got = append(got, r.Code)
	}
	if d.Effect != effect || !slices.Equal(got, codes) || d.Reasons[0].Line != line {
		t.Errorf("%s %s: %s %v line %d, want %s %v line %d", c.Capability, c.Args.Raw(), d.Effect, got, d.Reasons[0].Line,
			effect, codes, line)
	}
	if d.Policy == "" || d.Call.Capability != c.Capability || d.DryRun {
		t.Errorf("%s: the decision lacks its policy or its call: %+v", c.Capability, d)
	}
}

// Each row is one rule: shut with the row's machine or configuration, and open in the control,
// which differs in one point.
func TestDenials(t *testing.T) {
	const text = `servers: {s: {command: [a]}}
environment: production
capabilities:
  s.open: {mode: read, approval: none}
  t.lost: {transport: mcp, mode: read, approval: none}
  s.staged: {mode: read, approval: none, environments: [staging]}
  nowhere: {mode: read, approval: none}
  keyed: {server: s, mode: read, approval: none, secrets: token}
  boxed: {transport: sandboxed_exec, mode: high_risk, approval: none}
  named: {transport: sandboxed_exec, mode: high_risk, approval: none, isolation: namespace}
  bossed: {server: s, mode: read, approval: {by: boss}}
  ruled: {server: s, mode: read, approval: none, rules: [{when: "args.x == 1", deny: true, reason: never}]}
  "*.strong": {mode: read, approval: none, isolation: gvisor}
`
	good := everything
	good.Secrets = map[string]bool{"token": true}
	without := func(change func(m *Machine)) Machine {
		m := Machine{
			Isolations: map[string]bool{"namespace": true, "gvisor": true},
			Transports: map[contract.Transport]bool{contract.MCP: true, contract.SandboxedExec: true},
			Secrets:    map[string]bool{"token": true},
		}
		change(&m)
		return m
	}
	replaced := func(old, new string) string { return strings.Replace(text, old, new, 1) }
	for _, row := range []struct {
		why, capability, code string
		shut                  string // the configuration
		machine               Machine
		open                  string // of the control, on a good machine
		args                  string
	}{
		{"no contract", "s.other", "contract.absent", text, good, replaced("s.open", "s.other"), `{}`},
		{"another server's tool of the same name", "t.open", "contract.absent", text, good,
			replaced("t.lost: {transport: mcp", "t.open: {server: s"), `{}`},
		{"another letter case", "S.open", "contract.absent", text, good, replaced("s.open: {", "S.open: {server: s, "), `{}`},
		{"another environment", "s.staged", "environment.excluded", text, good,
			replaced("environment: production", "environment: staging"), `{}`},
		{"no environment at all", "s.staged", "environment.excluded", replaced("environment: production\n", ""), good,
			replaced("environment: production", "environment: staging"), `{}`},
		{"no transport", "nowhere", "transport.absent", text, good, replaced("nowhere: {", "nowhere: {server: s, "), `{}`},
		{"no server", "t.lost", "server.unbound", text, good, replaced("t.lost: {", "t.lost: {server: s, "), `{}`},
		{"no secret", "keyed", "secret.unbound", text, without(func(m *Machine) { m.Secrets = nil }), text, `{}`},
		{"no executor", "s.open", "transport.unavailable", text,
			without(func(m *Machine) { delete(m.Transports, contract.MCP) }), text, `{}`},
		{"no strong sandbox for the class", "boxed", "isolation.unavailable", text,
			without(func(m *Machine) { delete(m.Isolations, "gvisor") }), text, `{}`},
		{"no sandbox of the name", "named", "isolation.unavailable", text,
			without(func(m *Machine) { delete(m.Isolations, "namespace") }), text, `{}`},
		{"a weaker sandbox of its server", "s.strong", "isolation.server", text, good,
			replaced("command: [a]", "command: [a], isolation: gvisor"), `{}`},
		{"the zero machine", "named", "transport.unavailable", text, Machine{}, text, `{}`},
		{"nobody who may answer", "bossed", "role.unbound", text, good, "approval: {by: {boss: [alice]}}\n" + text, `{}`},
		{"a rule", "ruled", "rule.deny", text, good, replaced("args.x == 1", "args.x == 2"), `{"x":1}`},
		{"a rule that cannot be told", "ruled", "rule.deny", text, good, replaced("args.x == 1", "has(args.x)"), `{}`},
		{"a name that does not print", "s.open\n", "capability.malformed", text, good, "", `{}`},
		{"a star is no name", "s.*", "capability.malformed", text, good, "", `{}`},
		{"no name", "", "capability.malformed", text, good, "", `{}`},
	} {
		t.Run(row.why, func(t *testing.T) {
			c := ask(t, row.capability, row.args)
			d := compileText(t, row.shut, row.machine).Decide(c)
			if d.Effect != Deny || d.Reasons[0].Code != row.code {
				t.Errorf("shut: %s %v, want %s", d.Effect, d.Reasons, row.code)
			}
			if row.open == "" {
				return
			}
			if d := compileText(t, row.open, good).Decide(c); d.Effect == Deny {
				t.Errorf("control: %v", d.Reasons)
			}
		})
	}
}

func TestAsks(t *testing.T) {
	entry := func(s string) string {
		return "approval: {by: {boss: [alice]}}\ncapabilities:\n  x: {transport: direct, " + s + "}\n"
	}
	for _, row := range []struct {
		why, entry, args string
		effect           Effect
		code             string
		danger           int
	}{
		{"a read that asks nobody", "mode: read, approval: none", `{}`, Allow, "mode.read", 1},
		{"a read that says nothing of approval", "mode: read", `{}`, Ask, "approval.default", 1},
		{"nothing said at all", "network: none", `{}`, Ask, "approval.default", 3},
		{"always", "mode: read, approval: always", `{}`, Ask, "approval.always", 1},
		{"a role alone asks always", "mode: read, approval: {by: boss}", `{}`, Ask, "approval.always", 1},
		{"high risk where its operator wrote none", "mode: high_risk, approval: none", `{}`, Allow, "mode.high_risk", 3},
		{"danger raised by its line, with none", "mode: read, danger: 3, approval: none", `{}`, Allow, "mode.read", 3},
		{"danger 3 and a condition that does not hold", "mode: read, danger: 3, approval: {when: 'false'}", `{}`,
			Allow, "mode.read", 3},
		{"high risk and a condition that does not hold", "mode: high_risk, approval: {when: 'args.n > 10'}", `{"n":10}`,
			Allow, "mode.high_risk", 3},
		{"high risk and a condition that holds", "mode: high_risk, approval: {when: 'args.n > 10'}", `{"n":11}`, Ask,
			"approval.condition", 3},
		{"high risk and a condition that cannot be told", "mode: high_risk, approval: {when: 'args.n > 10'}", `{}`, Ask,
			"approval.condition_error", 3},
		{
			"a rule that raises to 3 beats a condition",
			"mode: write, approval: {when: 'false'}, rules: [{when: 'args.n == 1', danger: 3}]", `{"n":1}`,
			Ask, "rule.danger", 3,
		},
		{"a condition that holds", "mode: write, approval: {when: 'args.n > 10'}", `{"n":11}`, Ask, "approval.condition", 2},
		{"a condition that does not hold", "mode: write, approval: {when: 'args.n > 10'}", `{"n":10}`,
			Allow, "mode.write", 2},
		{"a condition on a key that is not there", "mode: write, approval: {when: 'args.n > 10'}", `{}`, Ask,
			"approval.condition_error", 2},
		{"a condition on NaN as text", "mode: write, approval: {when: 'args.n > 10'}", `{"n":"NaN"}`, Ask,
			"approval.condition_error", 2},
		{"a rule that raises to 3 beats none", "mode: read, approval: none, rules: [{when: 'args.n == 1', danger: 3}]",
			`{"n":1}`, Ask, "rule.danger", 3},
		{"the control of that", "mode: read, approval: none, rules: [{when: 'args.n == 1', danger: 3}]", `{"n":2}`,
			Allow, "mode.read", 1},
		{"a rule that raises to 2 is noted", "mode: read, approval: none, rules: [{when: 'args.n == 1', danger: 2}]",
			`{"n":1}`, Allow, "rule.danger", 2},
		{"a rule that cannot be told raises", "mode: read, approval: none, rules: [{when: 'args.n == 1', danger: 3}]", `{}`,
			Ask, "rule.danger", 3},
		{
			"the highest rule counts", "mode: read, approval: none, rules: [{when: 'true', danger: 2}, {when: 'args.n == 1', " +
				"danger: 3}]", `{"n":1}`, Ask, "rule.danger", 3,
		},
		{
			"a lower rule after a higher one lowers nothing",
			"mode: read, approval: none, rules: [{when: 'args.n == 1', danger: 3}, {when: 'true', danger: 2}]", `{"n":1}`,
			Ask, "rule.danger", 3,
		},
		{"who calls counts", "mode: read, approval: {when: \"principal != 'os:1000'\"}", `{}`, Allow, "mode.read", 1},
		{"by which channel counts", "mode: read, approval: {when: \"channel == 'mcp'\"}", `{}`, Ask, "approval.condition", 1},
		{"how deep counts", "mode: read, approval: {when: 'depth > 0'}", `{}`, Allow, "mode.read", 1},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := compileText(t, entry(row.entry), everything).Decide(ask(t, "x", row.args))
			if d.Effect != row.effect || d.Reasons[0].Code != row.code || d.Danger != row.danger {
				t.Errorf("%s danger %d %v, want %s danger %d %s", d.Effect, d.Danger, d.Reasons, row.effect, row.danger, row.code)
			}
		})
	}
}

func TestTheMostSpecificStandsAlone(t *testing.T) {
	p := compileText(t, `servers: {mail: {command: [a]}, gh: {command: [a]}}
capabilities:
  '*': {mode: read, approval: none}
  gh.*: {mode: write, approval: none, timeout_seconds: 5}
  gh.create_*: {mode: write, approval: always}
  gh.create_issue: {mode: read, approval: none}
  mail.*: {mode: read, approval: none}
  '*.send': {mode: write, approval: always}
`, everything)
	for _, row := range []struct {
		why, name, pattern string
		effect             Effect
	}{
		{"a star alone is the last", "mail", "*", Deny}, // no transport: nothing tells it
		{"a longer beginning", "gh.list", "gh.*", Allow},
		{"a longer one still", "gh.create_repo", "gh.create_*", Ask},
		{"a name", "gh.create_issue", "gh.create_issue", Allow},
		{"a tie goes to the strictest", "mail.send", "*.send", Ask},
		{"a tie on both sides of the file", "gh.send", "*.send", Ask},
		{"no tie", "mail.read", "mail.*", Allow},
	} {
		d := p.Decide(ask(t, row.name, `{}`))
		if d.Effect != row.effect || d.Contract.Pattern != row.pattern {
			t.Errorf("%s: %s by %q %v, want %s by %q", row.why, d.Effect, d.Contract.Pattern, d.Reasons, row.effect, row.pattern)
		}
	}
	if d := p.Decide(ask(t, "gh.create_repo", `{}`)); d.Contract.Timeout != 30*time.Second {
		t.Errorf("entries merged: timeout %s", d.Contract.Timeout)
	}
	if c, ok := p.Lookup("mail.send"); !ok || c.Pattern != "*.send" || c.Server != "mail" || c.Tool != "send" {
		t.Errorf("Lookup: %v %+v", ok, c)
	}
}

// The order of the file does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	entries := []string{"'*': {transport: direct, mode: read, approval: none}",
		"a.*: {transport: direct, mode: write, approval: always}",
		"'*.z': {transport: direct, mode: read, approval: none}", "a.b*: {transport: direct, mode: read, approval: none}"}
	names := []string{"a.z", "a.bz", "a.b.z", "q.z", "q", "a.", "a.b"}
	var first []string
	for turn := range 24 {
		order := slices.Clone(entries)
		n := turn
		for i := len(order); i > 1; i-- {
			order[i-1], order[n%i] = order[n%i], order[i-1]
			n /= i
		}
		p := compileText(t, "capabilities:\n  "+strings.Join(order, "\n  ")+"\n", everything)
		var got []string
		for _, name := range names {
			got = append(got, p.Decide(ask(t, name, `{}`)).Effect.String())
		}
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Fatalf("%v decides %v, before %v", order, got, first)
		}
	}
	if want := []string{"ask", "allow", "allow", "allow", "allow", "ask", "allow"}; !slices.Equal(first, want) {
		t.Errorf("%v, want %v", first, want)
	}
}

// NAME: deny denies under a wider entry that allows, and wins a tie.
func TestDenyAsAContract(t *testing.T) {
	p := compileText(t, "servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: read, approval: none}\n"+
		"  s.delete_*: deny\n  '*_all': {mode: read, approval: none}\n", everything)
	check(t, p, ask(t, "s.read", `{}`), Allow, []string{"mode.read", "approval.none"}, 3) // the control
	check(t, p, ask(t, "s.delete_one", `{}`), Deny, []string{"contract.deny"}, 4)
	check(t, p, ask(t, "s.delete_all", `{}`), Deny, []string{"contract.deny"}, 4)
	if p.Usable("s.delete_one", "os:1", "mcp") || !p.Usable("s.read", "os:1", "mcp") {
		t.Error("who may not use it need not know of it")
	}
}

func TestVisible(t *testing.T) {
	p := compileText(t, "servers: {s: {command: [a]}}\nenvironment: a\ncapabilities:\n  s.a: {mode: read}\n"+
		"  s.b: {mode: read, environments: [b]}\n  s.d: deny\n  run_shell: {mode: read}\n", everything)
	for name, want := range map[call.Capability]bool{
		"s.a": true, "s.b": false, "s.c": false, "s.d": false, "run_shell": true, "run_python": false, "s.a\n": false,
	} {
		if p.Visible(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// A server's annotations count in a dry run and in check as in the call. An example can fit the contract alone, or a
// lock that is not written yet. Such an example does not keep waldo from starting.
func TestAnnotationsCountInDryRuns(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"destructiveHint":true}`))
	if err != nil {
		t.Fatal(err)
	}
	with := everything
	with.Annotations = func(server, tool string) (strictjson.Value, bool) {
		if server != "s" || tool == "new" {
			return strictjson.Value{}, false
		}
		if tool == "drop" {
			return v, true
		}
		return strictjson.Value{}, true
	}
	const head = "servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: write, approval: none, examples: " +
		"[{capability: "
	for _, row := range []struct {
		example       string
		loads, checks bool
	}{
		{"s.look, expect: allow", true, true},
		{"s.look, expect: ask", false, false},
		{"s.drop, expect: ask", true, true},
		{"s.drop, expect: allow", true, false},
		{"s.drop, expect: deny", false, false},
		{"s.new, expect: allow", true, true},
		{"s.new, expect: ask", true, false},
	} {
		cfg, problems := config.Parse("w", []byte(head+row.example+"}]}\n"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		p, err := New(cfg, with)
		if (err == nil) != row.loads {
			t.Errorf("%s: loads: %v", row.example, err)
		}
		if err == nil && (len(p.CheckExamples()) == 0) != row.checks {
			t.Errorf("%s: check: %v", row.example, p.CheckExamples())
		}
	}
	p := compileText(t, "servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: write, approval: none}\n", with)
	for tool, want := range map[string]string{
		"look": "allow mode.write", "drop": "ask annotation.destructive", "new": "allow mode.write",
	} {
		d := p.Explain(ask(t, "s."+tool, `{}`))
		if got := d.Effect.String() + " " + d.Reasons[0].Code; got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
		if unknown := d.Reasons[len(d.Reasons)-1].Code == "annotation.unknown"; unknown != (tool == "new") {
			t.Errorf("%s: %v", tool, d.Reasons)
		}
	}
	with.Pinned = func(server string) bool { return server == "s" } // the tools that it has beside are held back
	p = compileText(t, "servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: write, approval: none}\n", with)
	for tool, want := range map[string]string{"look": "allow mode.write", "new": "deny lock.new"} {
		d := p.Explain(ask(t, "s."+tool, `{}`))
		if got := d.Effect.String() + " " + d.Reasons[0].Code; got != want {
			t.Errorf("pinned, %s: %s, want %s", tool, got, want)
		}
	}
}

// TestSecretsOfAServer: a decision names the secrets that the server of a tool has, which its contract need not repeat.
func TestSecretsOfAServer(t *testing.T) {
	p := compileText(t, "secrets: {key: {from: 'env:KEY'}}\nservers: {s: {command: [a], secrets: {T: key}}, z: {command: [a]}}\n"+
		"capabilities:\n  s.x: {mode: read, approval: none}\n  z.x: {mode: read, approval: none}\n", everything)
	if d := p.Decide(ask(t, "s.x", `{}`)); d.Contract.Secrets["T"] != "key" || d.Effect != Allow {
		t.Errorf("%v %v", d.Contract.Secrets, d.Reasons)
	}
	if d := p.Decide(ask(t, "z.x", `{}`)); len(d.Contract.Secrets) > 0 {
		t.Errorf("control: %v", d.Contract.Secrets)
	}
}

func TestExplainExecutesNothing(t *testing.T) {
	p := compileText(t, "", everything)
	c := ask(t, "run_python", `{"code":"1"}`)
	d, dry := p.Decide(c), p.Explain(c)
	if !dry.DryRun || d.DryRun || dry.Effect != d.Effect || !slices.Equal(dry.Reasons, d.Reasons) {
		t.Errorf("%+v\n%+v", d, dry)
	}
}

func TestReasonsHoldNoArguments(t *testing.T) {
	p := compileText(t, "capabilities:\n  x: {transport: direct, mode: write, approval: {when: 'args.n > 1'}, rules: "+
		"[{when: \"args.n == 'a'\", danger: 3}]}\n", everything)
	for _, args := range []string{`{"n":"s3cret-value"}`, `{"s3cret-value":1}`, `{"n":["s3cret-value"]}`} {
		if text := fmt.Sprint(p.Decide(ask(t, "x", args)).Reasons); strings.Contains(text, "s3cret") {
			t.Error(text)
		}
	}
}

func TestDigestIsOfWhatIsInForce(t *testing.T) {
	a, b, c := compileText(t, "version: 1\n", everything), compileText(t, "version: 1\n", everything),
		compileText(t, "version: 1\nenvironment: x\n", everything)
	cfg := config.Default()
	cfg.Contracts[0].Timeout = 0
	d, err := New(cfg, everything)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(config.Default(), everything)
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest() != b.Digest() || a.Digest() == c.Digest() || d.Digest() == e.Digest() ||
		len(a.Digest()) != len("sha256:")+64 {
		t.Errorf("%s %s %s %s %s", a.Digest(), b.Digest(), c.Digest(), d.Digest(), e.Digest())
	}
}

// TestLaunch: a session of an agent host is started by a person's command alone, whatever the contract says.
func TestLaunch(t *testing.T) {
	p := compileText(t, "capabilities: {launch: {mode: write, approval: none, isolation: namespace}}\n", everything)
	for channel, want := range map[string]string{call.Launch: "", "mcp": "channel.denied", "bridge": "channel.denied",
		"cli": "channel.denied", "": "channel.denied"} {
		c := ask(t, "launch", `{"argv":["x"]}`)
		c.Channel = channel
		d := p.Decide(c)
		code := ""
		if d.Effect == Deny {
			code = d.Reasons[0].Code
		}
		if code != want {
			t.Errorf("channel %q: %v", channel, d.Reasons)
		}
		if p.Usable("launch", "os:1", channel) != (want == "") {
			t.Errorf("channel %q: usable", channel)
		}
	}
}
