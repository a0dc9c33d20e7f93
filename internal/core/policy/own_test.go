package policy

import (
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestOwnTools: the danger of a tool of waldo's own is a floor, and only an operator who writes danger 3 accepts it.
func TestOwnTools(t *testing.T) {
	p := compileText(t, `version: 1
servers: {fetch: {command: [x]}}
capabilities:
  files.*: {transport: direct, mode: read, approval: none}
  files.edit: {transport: direct, mode: read, danger: 3, approval: none}
  fetch.get: {mode: read, approval: none}
  cli: {mode: read, approval: none}
`, everything)
	accepted := compileText(t, "capabilities:\n  files.delete: {transport: direct, mode: high_risk, approval: none}\n",
		everything)
	unwritten := compileText(t, "capabilities:\n  files.*: {transport: direct, approval: none}\n", everything)
	for _, c := range []struct {
		why    string
		p      *Policy
		name   string
		effect Effect
		danger int
		mode   contract.Mode
	}{
		{"a read stays one", p, "files.read", Allow, 1, contract.Read},
		{"a write is one under a pattern of reads", p, "files.write", Allow, 2, contract.Write},
		{"a delete is asked about", p, "files.delete", Ask, 3, contract.HighRisk},
		{"a contract can raise the danger", p, "files.edit", Allow, 3, contract.Write},
		{"a server's tool has no floor", p, "fetch.get", Allow, 1, contract.Read},
		{"danger 3 that is written is accepted", accepted, "files.delete", Allow, 3, contract.HighRisk},
		{"danger 3 by an absent mode is not", unwritten, "files.delete", Ask, 3, contract.HighRisk},
	} {
		d := c.p.Decide(ask(t, c.name, `{}`))
		if d.Effect != c.effect || d.Danger != c.danger || d.Mode() != c.mode {
			t.Errorf("%s: %s, danger %d, %s: %v", c.why, d.Effect, d.Danger, d.Mode(), d.Reasons)
		}
		k, _ := c.p.Lookup(call.Capability(c.name))
		if k.Mode != c.mode || d.Repeats() != (c.mode == contract.Read) {
			t.Errorf("%s: the contract in force says %s, repeats %t", c.why, k.Mode, d.Repeats())
		}
	}
}

// TestPublic: a run asks for every public host where its contract does not say that it reaches none.
func TestPublic(t *testing.T) {
	p := compileText(t, `capabilities:
  run_python: {mode: write, isolation: namespace, approval: none}
  run_shell: {mode: write, isolation: namespace, approval: none, network: denied}
  exec: {mode: write, isolation: namespace, approval: none, network: {allow: [a.example.com]}}
`, everything)
	for _, c := range []struct {
		name   string
		run    *call.Run
		chain  []string
		effect Effect
		public bool
	}{
		{"run_python", nil, nil, Allow, false}, // the control
		{"run_python", &call.Run{Offline: true}, nil, Allow, false},
		{"run_python", &call.Run{Public: true}, nil, Ask, true},
		{"exec", &call.Run{Public: true}, nil, Ask, true},
		{"run_shell", &call.Run{Public: true}, nil, Allow, false}, // the runner refuses it
		{"exec", &call.Run{Public: true}, []string{"a"}, Allow, false},
	} {
		asked := ask(t, c.name, `{}`)
		asked.Run, asked.Chain = c.run, c.chain
		d := p.Decide(asked)
		if d.Effect != c.effect || d.Contract.Network.Public != c.public || c.public &&
			(d.Danger != 3 || d.Reasons[0].Code != "network.public") {
			t.Errorf("%s %+v: %s, danger %d, public %t: %v", c.name, c.run, d.Effect, d.Danger, d.Contract.Network.Public, d.Reasons)
		}
	}
}

// TestJudge: a verdict on the arguments raises the danger, asks or refuses; it never lowers anything.
func TestJudge(t *testing.T) {
	m := everything
	danger, why := 1, (*call.Reason)(nil)
	m.Judge = func(call.Call, contract.Contract) (int, *call.Reason) { return danger, why }
	p := compileText(t, "capabilities:\n  cli: {mode: write, isolation: namespace, approval: none}\n", m)
	for _, c := range []struct {
		danger int
		why    *call.Reason
		effect Effect
		want   int
	}{
		{1, nil, Allow, 2},
		{0, nil, Allow, 2},
		{1, &call.Reason{Code: "command.read"}, Allow, 2},
		{3, &call.Reason{Code: "command.danger"}, Ask, 3},
		{0, &call.Reason{Code: "argument.denied"}, Deny, 2},
	} {
		danger, why = c.danger, c.why
		if d := p.Decide(ask(t, "cli", `{}`)); d.Effect != c.effect || d.Danger != c.want {
			t.Errorf("%d, %v: %s, danger %d, %v", c.danger, c.why, d.Effect, d.Danger, d.Reasons)
		}
	}
	danger, why = 0, &call.Reason{Code: "argument.denied"}
	if !p.Usable("cli", "os:1000", "mcp") {
		t.Error("a refusal by arguments hides the tool")
	}
}
