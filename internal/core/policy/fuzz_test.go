package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"waldo/internal/config"
	"waldo/internal/config/starter"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// FuzzDecide: a call that no pattern matches is denied, and the zero machine allows nothing.
func FuzzDecide(f *testing.F) {
	f.Add([]byte(seed), "create_ticket", []byte(`{"priority":"high"}`))
	f.Add(starter.Init("x"), "run_shell", []byte(`{}`))
	f.Add([]byte("servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: read, approval: {when: 'args.n > 1'}}\n"+
		"  '*.x': {mode: write, approval: none, rules: [{when: \"args.n == 'a'\", danger: 3}]}\n"), "s.x", []byte(`{"n":2}`))
	f.Add([]byte("servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: read, approval: none, rules: [{when: "+
		"\"args.n == 1 || principal != ''\", deny: true}]}\n"), "s.x", []byte(`{"n":2}`))
	f.Fuzz(func(t *testing.T, text []byte, name string, raw []byte) {
		args, err := call.ParseArgs(raw)
		if err != nil {
			return
		}
		cfg, problems := config.Parse("w", text)
		if len(problems) > 0 {
			return
		}
		p, err := New(cfg, everything)
		if err != nil {
			return
		}
		c := call.Call{Capability: call.Capability(name), Args: args}
		d := p.Decide(c)
		if len(d.Reasons) == 0 {
			t.Error("a decision without a reason")
		}
		if d.Effect != Deny && !p.Usable(c.Capability, c.Principal, c.Channel) {
			t.Errorf("%q is %s, and it was said to be denied always", name, d.Effect)
		}
		if d.Effect != Deny && d.Contract.Server != "" && !p.Reaches(d.Contract.Server, c.Principal, c.Channel) {
			t.Errorf("%q is %s, and nothing of its server was said to be usable", name, d.Effect)
		}
		matched := slices.ContainsFunc(cfg.Contracts, func(c contract.Contract) bool {
			return contract.Pattern(c.Pattern).Match(name)
		})
		if !matched && d.Effect != Deny {
			t.Errorf("no contract matches %q, and it is %s", name, d.Effect)
		}
		none, err := New(cfg, Machine{})
		if err != nil || none.Decide(c).Effect != Deny {
			t.Errorf("the zero machine: %v", err)
		}
	})
}

// FuzzConfiguration: whatever a configuration holds, compiling it gives a policy or problems that each have a line.
// The condition is put into a whole configuration as well, in both places.
func FuzzConfiguration(f *testing.F) {
	f.Add(starter.Init("x"), "args.a.matches('^[a-z]{1,40}$')")
	f.Add([]byte("capabilities: {x: {mode: write, rules: [{when: \"args.a.matches('(a{9}){9}|b{2,}')\", deny: true}]}}\n"),
		"args.l.all(x, x.matches(args.p))")
	f.Add([]byte("capabilities: {x: {mode: read, approval: {when: \"args.a.matches('a{2,1}')\"}}}\n"),
		"args.a.matches('\\\\p{Greek}{3}(?i)[[:alpha:]]{0,2}?')")
	f.Fuzz(func(t *testing.T, text []byte, when string) {
		quoted, err := json.Marshal(when)
		if err != nil {
			t.Fatal(err)
		}
		whole := fmt.Sprintf("servers: {s: {command: [a]}}\ncapabilities:\n  s.a: {mode: write, approval: {when: %s},\n"+
			"    rules: [{when: %s, danger: 3}], examples: [{args: {a: b}, expect: ask}]}\n", quoted, quoted)
		for _, source := range []string{string(text), whole} {
			cfg, problems := config.Parse("w", []byte(source))
			if len(problems) == 0 {
				if _, err := New(cfg, everything); err != nil && !errors.As(err, &problems) {
					t.Errorf("no problem of the configuration: %v", err)
				}
			}
			for _, p := range problems {
				if p.At.Line == 0 {
					t.Errorf("a problem without a line: %v", p)
				}
			}
		}
	})
}

// FuzzCondition: no text makes compile panic, and an accepted condition evaluates without a panic.
func FuzzCondition(f *testing.F) {
	f.Add("args.priority == 'high'", []byte(`{"priority":["high"]}`))
	f.Add("args.l.exists(x, x in args.m) && !has(args.y)", []byte(`{"l":[1],"m":{"a":1}}`))
	f.Add(config.ManagerForHighPriority, []byte(`{}`))
	f.Fuzz(func(t *testing.T, source string, raw []byte) {
		cond, err := compile(contract.Condition{Source: source})
		if (cond == nil) == (err == nil) {
			t.Fatal("a condition and an error, or neither")
		}
		args, wrong := call.ParseArgs(raw)
		if err != nil || wrong != nil {
			return
		}
		one, oneErr := cond.holds(&variables{call: &call.Call{Args: args}})
		two, twoErr := cond.holds(&variables{call: &call.Call{Args: args}})
		if one != two || (oneErr == nil) != (twoErr == nil) {
			t.Errorf("%s: %v %v, then %v %v", source, one, oneErr, two, twoErr)
		}
		if oneErr != nil && one {
			t.Error("an error, and true")
		}
	})
}

func benchmark(b *testing.B, text, name, args string) {
	p := compileText(b, text, everything)
	c := ask(b, name, args)
	b.ReportAllocs()
	for b.Loop() {
		if d := p.Decide(c); d.Effect == Deny {
			b.Fatal(d.Reasons)
		}
	}
}

func BenchmarkDecideExact(b *testing.B) {
	benchmark(b, "", "run_python", `{"code":"print(1)"}`)
}

func BenchmarkDecidePatterns(b *testing.B) {
	text := "servers: {s: {command: [a]}}\ncapabilities:\n"
	for _, c := range "abcdefghijklmnopqrst" {
		text += "  s." + string(c) + "*: {mode: read, approval: none}\n"
	}
	benchmark(b, text+"  s.*: {mode: write}\n", "s.table", `{"id":1}`)
}

func BenchmarkDecideCondition(b *testing.B) {
	benchmark(b, "servers: {s: {command: [a]}}\ncapabilities:\n  s.a: {mode: write, approval: {when: \"args.priority == "+
		"'high'\"}, rules: [{when: 'args.public == true', danger: 3}]}\n", "s.a", `{"priority":"low","public":false}`)
}
