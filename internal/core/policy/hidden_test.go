package policy

import (
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestUndecided: a condition that needs a hidden argument names it; one that has its result without it names none, and
// then no value of the argument changes the decision.
func TestUndecided(t *testing.T) {
	for when, want := range map[string]string{"args.amount > 5": "args", "danger > 1": ""} { // a hidden name can be any
		if got := strings.Join(undecided(t, when, `{"amount":7,"[NAME]":1}`), " "); got != want {
			t.Errorf("%s: %q, not %q", when, got, want)
		}
	}
	const plain = `{"to":"[EMAIL]","amount":7,"list":["a","[NAME]"],"deep":{"x":"[SECRET]","y":1},"odd":{"[NAME]":1}}`
	values := []string{`"a@example.com"`, `""`, `"a"`, `"7"`, `null`, `7`, `{}`, `[]`}
	for _, row := range []struct{ when, want string }{
		{"args.amount > 5", ""}, {"args.deep.y == 1", ""}, {"danger > 1", ""}, {"has(args.to)", "args.to"}, {"'to' in args", ""},
		{"args.absent == 1", ""}, {"args.amount == 'x'", ""},
		{"args.to == 'a@example.com'", "args.to"}, {"args.to.endsWith('@example.com')", "args.to"},
		{"args.amount > 5 || args.to == 'a'", ""}, {"args.amount > 9 || args.to == 'a'", "args.to"},
		{"args.amount > 9 && args.to == 'a'", ""}, {"args.amount > 5 && args.to == 'a'", "args.to"},
		{"args.absent == 1 || args.to == 'a'", "args.to"},
		{"args.to in ['a', 'b']", "args.to"}, {"'a' in args.list", "args.list"}, {"args.list.size() > 1", "args.list"},
		{"args.list.exists(v, v == 'a')", "args.list"}, {"args.deep.x == 'a'", "args.deep.x"},
		{"args.deep == {'x': 'a', 'y': 1}", "args.deep.x"}, {"args.odd.size() == 1", "args.odd"}, {"args.odd == {}", "args.odd"},
		{"args.to == args.deep.x", "args.deep.x args.to"}, {"args.to == null", "args.to"}, {"args.to != null", "args.to"},
		{"args.exists(k, k == 'to')", ""}, {"args.exists(k, args[k] == 8)", "args.deep.x args.list args.odd args.to"},
		{"(args.to == 'a' ? 1 : 2) == 1", "args.to"}, {"[args.to] == ['a']", "args.to"}, {"args.to.trim() == 'a'", "args.to"},
	} {
		got := strings.Join(undecided(t, row.when, plain), " ")
		if got != row.want {
			t.Errorf("%s: %q, not %q", row.when, got, row.want)
		}
		if got != "" {
			continue
		}
		want := effect(t, row.when, plain)
		for _, v := range values {
			if is := effect(t, row.when, strings.Replace(plain, `"[EMAIL]"`, v, 1)); is != want {
				t.Errorf("%s: with %s: %v, not %v", row.when, v, is, want)
			}
		}
	}
}

// TestUndecidedRules: a rule that refuses anyway leaves nothing open; others do.
func TestUndecidedRules(t *testing.T) {
	hidden := func(s string) bool { return strings.Contains(s, "[") }
	at := call.Call{Capability: "x.y", Channel: "mcp", Args: argsOf(t, `{"a":"[NAME]","n":1}`)}
	for rules, want := range map[string]string{"args.a == 'b'": "args.a", "args.n == 1": "", "args.n == 'x'": "", "args.n == 2": "args.a"} {
		p := compiled(t, contract.Contract{Pattern: "x.y", Rules: []contract.Rule{
			{When: contract.Condition{Source: "args.a == 'c'"}, Danger: 3},
			{When: contract.Condition{Source: rules}, Deny: true}}})
		if got := strings.Join(p.Undecided(at, hidden), " "); got != want {
			t.Errorf("%s: %q, not %q", rules, got, want)
		}
	}
	p := compiled(t, contract.Contract{Pattern: "x.y", Denied: true})
	if got := p.Undecided(at, hidden); got != nil {
		t.Errorf("a denied capability: %q", got)
	}
}

func compiled(t *testing.T, c contract.Contract) *Policy {
	t.Helper()
	c.Transport, c.Mode, c.Danger = contract.MCP, contract.Write, 2
	p, err := New(&contract.Config{Contracts: []contract.Contract{c}}, Machine{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func argsOf(t *testing.T, text string) call.Args {
	t.Helper()
	a, err := call.ParseArgs([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func asking(t *testing.T, when string) *Policy {
	return compiled(t, contract.Contract{Pattern: "x.y", Approval: contract.Approval{When: contract.If,
		Condition: &contract.Condition{Source: when}}})
}

func undecided(t *testing.T, when, args string) []string {
	return asking(t, when).Undecided(call.Call{Capability: "x.y", Channel: "mcp", Args: argsOf(t, args)},
		func(s string) bool { return strings.Contains(s, "[") })
}

// effect says whether the condition asks, for the arguments as they are.
func effect(t *testing.T, when, args string) bool {
	p := asking(t, when)
	p.ideal = true
	return p.decide(call.Call{Capability: "x.y", Channel: "mcp", Args: argsOf(t, args)}, false).Effect == Ask
}
