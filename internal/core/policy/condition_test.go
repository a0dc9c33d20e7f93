package policy

import (
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// told evaluates a condition on arguments: "true", "false", or "untold" if it fails closed.
func told(t *testing.T, source, args string) string {
	t.Helper()
	c, err := compile(contract.Condition{Source: source})
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	holds, err := c.holds(&variables{call: &call.Call{Capability: "a.b", Args: a}, environment: "production", danger: 2})
	switch {
	case err != nil:
		return "untold"
	case holds:
		return "true"
	}
	return "false"
}

func TestConditions(t *testing.T) {
	const high = "args.priority == 'high'"
	for _, row := range []struct{ source, args, want, why string }{
		{high, `{"priority":"high"}`, "true", "equal text"},
		{high, `{"priority":"low"}`, "false", "other text"},
		{high, `{"priority":["high"]}`, "untold", "a list is not text"},
		{high, `{"priority":{"high":1}}`, "untold", "an object is not text"},
		{high, `{"priority":1}`, "untold", "a number is not text"},
		{high, `{"priority":true}`, "untold", "true is not text"},
		{high, `{"priority":null}`, "false", "null can be compared with anything"},
		{high, `{}`, "untold", "a key that is not there"},
		{high, `{"Priority":"high"}`, "untold", "names match exactly"},
		{"args.priority != 'low'", `{"priority":["low"]}`, "untold", "unequal is strict too"},
		{"args.priority != 'low'", `{"priority":"high"}`, "true", "unequal text"},
		{"args.priority in ['high', 'urgent']", `{"priority":"urgent"}`, "true", "one of a list"},
		{"args.priority in ['high', 'urgent']", `{"priority":"low"}`, "false", "none of a list"},
		{"args.priority in ['high', 'urgent']", `{"priority":["high"]}`, "untold", "a list is in no list of text"},
		{"'bcc' in args", `{"bcc":1}`, "true", "a key that is there"},
		{"'bcc' in args", `{"to":1}`, "false", "a key that is not"},
		{"args.n == 5", `{"n":5}`, "true", "a whole number and a double"},
		{"args.n == 5", `{"n":5.0}`, "true", "the same number spelled otherwise"},
		{"args.n == 5", `{"n":"5"}`, "untold", "a number as text"},
		{"args.n > 100", `{"n":100.5}`, "true", "greater"},
		{"args.n > 100", `{"n":"NaN"}`, "untold", "NaN as text"},
		{"args.n > 100", `{"n":[101]}`, "untold", "a number in a list"},
		{"args.n == 9007199254740992", `{"n":9007199254740993}`, "untold", "beyond 2^53"},
		{"args.n + 1.0 == args.n", `{"n":9007199254740990}`, "false", "a sum that a double holds"},
		{"args.n + 1.0 == args.n", `{"n":9007199254740992}`, "untold", "a sum that a double rounds"},
		{"args.n > 9007199254740992", `{"n":9007199254740993}`, "untold", "no double holds it"},
		{"args.n > 9007199254740992", `{"n":9007199254740994}`, "true", "a double holds it"},
		{"args.n > 9007199254740992", `{"n":9007199254740992}`, "false", "a double holds this, too"},
		{"args.n > 0.1", `{"n":0.1000000000000000000001}`, "untold", "more digits than a double has"},
		{"args.n > 0.1", `{"n":1e-400}`, "untold", "less than a double holds"},
		{"args.n > 0.1", `{"n":0.1}`, "false", "as doubles are written"},
		{"args.a[0].n < 0.5", `{"a":[{"n":0.49999999999999999999}]}`, "untold", "deep in the arguments"},
		{"args.n > 1 && args.m == 2", `{"n":2,"m":2,"x":9007199254740993}`, "true", "beside a number that is not asked for"},
		{"args.to.exists(x, x.endsWith('@evil.example'))", `{"to":["a@b","c@evil.example"]}`, "true", "one of many"},
		{"args.to.exists(x, x == 'a')", `{"to":["b",1]}`, "untold", "one that cannot be compared"},
		{"args.to.all(x, x.endsWith('@ok.example'))", `{"to":"a@ok.example"}`, "untold", "text has no elements"},
		{"has(args.x) && args.x == 1", `{}`, "false", "guarded"},
		{"args.x == 1 || true", `{}`, "true", "settled by the other side"},
		{"type(args.x) == string", `{"x":[1]}`, "false", "types are compared"},
		{"args.a.b.c == 'd'", `{"a":{"b":{"c":"d"}}}`, "true", "deep"},
		{"args.a.b.c == 'd'", `{"a":"b"}`, "untold", "not deep"},
		{"args['a b'] == 1", `{"a b":1}`, "true", "by any name"},
		{"size(args.rows) > 2", `{"rows":[1,2,3]}`, "true", "how many"},
		{"environment == 'production' && capability.startsWith('a.') && danger == 2 && depth == 0", `{}`,
			"true", "what is around"},
		{config.ManagerForHighPriority, `{"priority":" HIGH\n"}`, "true", "the shorthand sees through case and space"},
		{config.ManagerForHighPriority, `{"priority":"normal"}`, "false", "the shorthand's control"},
		{config.ManagerForHighPriority, `{"priority":["high"]}`, "untold", "the shorthand on a list"},
		{config.ManagerForHighPriority, `{}`, "untold", "the shorthand on nothing"},
		{"args.s.matches('^[a-z]+$')", `{"s":"abc"}`, "true", "a regular expression"},
		{"args.s.matches('^[a-z]{1,40}$')", `{"s":"abc"}`, "true", "a counted repetition"},
		{"args.s.matches('^[a-z]{1,40}$')", `{"s":"abC"}`, "false", "a counted repetition that does not match"},
		{"args.s.matches(args.p)", `{"s":"aa","p":"^a{2,3}$"}`, "true", "a counted repetition of the arguments"},
		{"args.s.matches(args.p)", `{"s":"a","p":"(a{50}){20}"}`, "untold", "one that is too large"},
		{"args.s.matches(args.p)", `{"s":"a","p":"("}`, "untold", "one that is none"},
		{"says(args, r'^a\\nb \\nb\\nx y \\nn\\nkey\\nz')", `{"n":{"key":"z"},"a":["b"],"b":["x","y"]}`, "true", "names in their order"},
		{"says(args, 'push') && args.l.all(x, says(x, '^go '))", `{"l":[["go","push"],["go"]]}`, "true", "says in a loop"},
		{"args.l.exists(x, says(x, '^go '))", `{"l":[["stop"]]}`, "false", "its control"},
	} {
		if got := told(t, row.source, row.args); got != row.want {
			t.Errorf("%s: %s with %s: %s, want %s", row.why, row.source, row.args, got, row.want)
		}
	}
}

func TestConditionsAreBounded(t *testing.T) {
	long := `{"l":[` + strings.Repeat("1,", 2000) + `1]}`
	const nested = "args.l.all(a, args.l.all(b, a == b))"
	if got := told(t, nested, `{"l":[1,1]}`); got != "true" {
		t.Fatalf("control: %s", got)
	}
	if got := told(t, nested, long); got != "untold" {
		t.Errorf("4 million steps: %s", got)
	}
}

func TestConditionsRefused(t *testing.T) {
	for _, row := range []struct{ source, says, why string }{
		{"args.x ==", "Syntax error", "not CEL"},
		{"args.x", "it yields dyn", "not true or false"},
		{"1 + 1", "it yields int", "a number"},
		{"arg.x == 1", "undeclared reference to 'arg'", "a name that does not exist"},
		{"now() > 1", "undeclared reference to 'now'", "no clock"},
		{"args.l.map(x, x) == [1]", "undeclared reference to 'map'", "a macro that is not needed"},
		{strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60), "recursion", "too deep"},
		{"'" + strings.Repeat("a", 3000) + "' == ''", "size exceeds limit", "too long"},
		{"args.n > 9007199254740993", "character 10: a double does not hold 9007199254740993 exactly",
			"a whole number that is rounded"},
		{"args.n > -9007199254740993.0", "a double does not hold", "one below zero"},
		{"args.n > 0.12345678901234567890123", "a double does not hold", "a fraction that is rounded"},
		{"args.s.matches('(a{50}){20}')", "exceeds limit", "a pattern that is too large"},
		{"args.s.matches('a{2,1}')", "invalid repeat count", "a pattern that is none"},
		{"says(args, args.p)", "at character 16: the regular expression of says must be a literal", "a pattern of the arguments"},
		{"args.l.all(x, says(args, x))", "must be a literal", "a pattern of a loop"},
		{"says(args, 'a' + 'b')", "must be a literal", "a pattern that is computed"},
		{"says(args, '(')", "missing closing )", "a pattern that is none, of says"},
		{"says(args, '(a{50}){20}')", "exceeds limit of 1000", "a pattern of says that is too large"},
		{"'a' == 1 && undefined", "undeclared reference", "strictness hides no error"},
	} {
		c, err := compile(contract.Condition{Source: row.source})
		if err == nil || c != nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %q", row.why, err, row.says)
		}
	}
	cfg, problems := config.Parse("w", []byte("capabilities:\n  x: {mode: write, approval: {when: 'arg.x'}}\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	_, err := New(cfg, Machine{})
	if ps, ok := err.(contract.Problems); !ok || !ps.Has("condition.invalid") || ps[0].At.Line != 2 ||
		ps[0].At.Column != 37 {
		t.Errorf("%T %v", err, err)
	}
}
