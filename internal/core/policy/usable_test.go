package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestUsable: Usable is false for a principal whose calls are all denied, and true if some arguments pass.
func TestUsable(t *testing.T) {
	const head = "servers: {s: {command: [a]}}\napproval: {by: {manager: [os:2]}}\ncapabilities:\n  s.a: {mode: read, " +
		"approval: none, "
	for _, row := range []struct {
		rest string
		who  call.Principal
		want bool
		why  string
	}{
		{"}", "os:1", true, "allowed"},
		{"rules: [{when: \"principal == 'os:1'\", deny: true}]}", "os:1", false, "denied by who asks"},
		{"rules: [{when: \"principal == 'os:1'\", deny: true}]}", "os:2", true, "denied to another"},
		{"rules: [{when: \"!(principal in ['os:2', 'os:3'])\", deny: true}]}", "os:1", false, "denied to all but some"},
		{"rules: [{when: \"principal == 'os:1' && args.x == 1\", deny: true}]}", "os:1", true, "denied with some arguments"},
		{"rules: [{when: \"principal == 'os:1' || args.x == 1\", deny: true}]}", "os:1", false, "denied with all arguments"},
		{"rules: [{when: \"args.x == 1 || principal == 'os:1'\", deny: true}]}", "os:1", false, "whatever stands first"},
		{"rules: [{when: \"has(args.x)\", deny: true}]}", "os:1", true, "arguments may lack a key"},
		{"rules: [{when: \"args.all(k, k == 'x')\", deny: true}]}", "os:1", true, "any argument may come"},
		{"rules: [{when: \"session == ''\", deny: true}, {when: \"depth == 0\", deny: true}]}", "os:1", true,
			"a session and a depth are nobody's for ever"},
		{"rules: [{when: \"channel == 'mcp'\", deny: true}]}", "os:1", false, "denied over this channel"},
		{"rules: [{when: \"channel == 'cli'\", deny: true}]}", "os:1", true, "denied over another channel"},
		{"rules: [{when: \"principal == 'os:1'\", danger: 3}]}", "os:1", true, "somebody is asked"},
		{"environments: [nowhere]}", "os:1", false, "it does not hold here"},
		{"secrets: {A: no_such}}", "os:1", false, "what it needs is not there"},
	} {
		p := compileText(t, head+row.rest+"\n", everything)
		if got := p.Usable("s.a", row.who, "mcp"); got != row.want {
			t.Errorf("%s: usable is %v: %s", row.why, got, row.rest)
		}
	}
	if p := compileText(t, head+"}\n", everything); p.Usable("s.b", "os:1", "mcp") {
		t.Error("what no contract names is usable")
	}
}

// TestUsableAsk: no principal has the role that is always asked.
func TestUsableAsk(t *testing.T) {
	const text = "servers: {s: {command: [a]}}\ncapabilities:\n  s.a: {mode: read, "
	for rest, want := range map[string]bool{
		"approval: {when: \"args.x == 1\", by: nobody}}":            true, // the condition decides
		"approval: {when: \"args.x == 1\", by: nobody}, danger: 3}": true,
		"approval: {by: nobody}}":                                   false,
	} {
		if got := compileText(t, text+rest+"\n", everything).Usable("s.a", "os:1", "mcp"); got != want {
			t.Errorf("%s: usable is %v", rest, got)
		}
	}
}

// TestReaches: which principals can learn a server's name.
func TestReaches(t *testing.T) {
	const deny = "rules: [{when: \"principal != 'os:1'\", deny: true}]"
	for _, row := range []struct {
		capabilities, who string
		want              bool
		why               string
	}{
		{"s.a: {mode: read, approval: none}", "os:2", true, "a tool"},
		{"s.a: {mode: read, approval: none, " + deny + "}", "os:2", false, "a tool that is another's"},
		{"s.a: {mode: read, approval: none, " + deny + "}", "os:1", true, "one's own"},
		{"t.a: {mode: read, approval: none}", "os:1", false, "no contract speaks of it"},
		{"s.*: {mode: read, approval: none}", "os:2", true, "a pattern"},
		{"s.*: {mode: read, approval: none, " + deny + "}", "os:2", false, "a pattern that is another's"},
		{"'*': {mode: read, approval: none}", "os:2", true, "a pattern of all servers"},
		{"{'*': {mode: read, approval: none}, s.*: {mode: read, approval: none, " + deny + "}}", "os:2", false,
			"which the server's own beats"},
		{"{'*.b': {mode: read, approval: none}, s.*: {mode: read, approval: none, " + deny + "}}", "os:2", true,
			"one that only overlaps may name a tool"},
		{"{s.b*: {mode: read, approval: none}, s.*: {mode: read, approval: none, " + deny + "}}", "os:2", true,
			"the more specific decides"},
		{"t.*: {mode: read, approval: none}", "os:2", false, "a pattern of another server"},
		{"x.*: {mode: read, approval: none, server: s}", "os:2", true, "under another name"},
		{"x.a: {mode: read, approval: none, server: s, tool: a}", "os:2", true, "a tool under another name"},
		{"x.a: {mode: read, approval: none, server: s, tool: a, " + deny + "}", "os:2", false, "one that is another's"},
		{"s.*: {mode: read, approval: none, rules: [{when: \"capability == 's.a'\", deny: true}]}", "os:2", true,
			"others are not denied"},
		{"s.*: {mode: read, approval: none, rules: [{when: \"capability != 's.a'\", deny: true}]}", "os:2", true,
			"one is not denied"},
		{"s.*: {mode: read, approval: none, rules: [{when: \"args.x == 1\", deny: true}]}", "os:2", true,
			"arguments that are not denied"},
	} {
		text := "servers: {s: {command: [a]}, t: {command: [a]}}\ncapabilities: "
		if row.capabilities[0] != '{' {
			text += "{" + row.capabilities + "}\n"
		} else {
			text += row.capabilities + "\n"
		}
		if got := compileText(t, text, everything).Reaches("s", call.Principal(row.who), "bridge"); got != row.want {
			t.Errorf("%s: %v: %s", row.why, got, row.capabilities)
		}
	}
}

// TestNames: Names returns a tool's capability names and omits those that the contracts hide.
func TestNames(t *testing.T) {
	const head = "servers: {s: {command: [a]}, o: {command: [b]}}\ncapabilities:\n"
	for _, row := range []struct{ contracts, tool, want, why string }{
		{"  s.*: {mode: read}\n", "a", "s.a", "its own name"},
		{"  o.*: {mode: read}\n", "a", "s.a", "no contract speaks of it: the list hides it, whatever its name"},
		{"  s.make: {mode: read, tool: create-it}\n", "create-it", "s.create-it s.make",
			"a tool by another name keeps its own"},
		{"  s.make: {mode: read, tool: create-it}\n", "make", "", "its name belongs to another tool now"},
		{"  ticket: {mode: read, server: s}\n", "ticket", "s.ticket ticket", "a server by another name"},
		{"  ticket: {mode: read, server: s, tool: open}\n", "open", "s.open ticket", "both"},
		{"  gh.*: {mode: read, server: s}\n", "a", "s.a gh.a", "all tools of a server by another name"},
		{"  gh.get_*: {mode: read, server: s}\n", "a", "s.a", "not what the pattern does not match"},
		{"  o.*: {mode: read, server: s}\n", "a", "s.a o.a", "under the name of another server"},
		{"  ticket: {mode: read, server: o}\n", "ticket", "s.ticket", "another server's"},
		{"  n.x: {mode: read, server: s, tool: a}\n  n.*: {mode: read, server: o}\n", "a", "s.a n.x",
			"the entry that decides gives the name"},
	} {
		got := ""
		for _, n := range compileText(t, head+row.contracts, everything).Names("s", row.tool) {
			got += " " + string(n)
		}
		if strings.TrimSpace(got) != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}

// No contract gives a name of waldo's own to a tool of a server: it is refused where it is written.
func TestOwnNames(t *testing.T) {
	const head = "servers: {s: {command: [a]}}\ncapabilities:\n"
	for _, row := range []struct{ contracts, want, why string }{
		{"  run_python: {mode: read, server: s, tool: echo}\n", "3:28 run_python",
			"a tool of a server in place of waldo's own"},
		{"  run_shell: {mode: read, server: s}\n", "3:27 run_shell", "the server's of the same name"},
		{"  run_shell: {mode: read, tool: echo}\n", "3:27 run_shell", "no server to have it"},
		{"  run_shell: {mode: read, transport: mcp, server: gone}\n", "3:43 run_shell", "a server that is not there"},
		{"  exec:\n    mode: read\n    server: s\n", "5:5 exec", "what runs commands"},
		{"  search_tools: {mode: read, server: s, tool: echo}\n", "3:30 search_tools", "what the gateway answers"},
		{"  call_tool: {mode: read, server: s}\n", "3:27 call_tool", "in the lean mode, too"},
		{"  run_code: {mode: read, server: s}\n", "3:26 run_code", "in the lean mode, too"},
		{"  '*': {mode: read, server: s}\n", "3:21 run_python", "a pattern that names them, once"},
		{"  run_*: {mode: read, server: s}\n  '*_python': {mode: read}\n", "3:23 run_python", "one of two that tie"},
		{"  '*': {mode: read, server: s}\n  run_*: {mode: read}\n  exec: {mode: read}\n  '*_*': {mode: read}\n", "",
			"a pattern that decides on none of them"},
		{"  '*': {mode: read, transport: mcp}\n", "", "no server: each call is denied"},
		{
			"  run_python: {mode: read}\n  s.*: {mode: read}\n  s.run_python: {mode: read}\n  o.search_tools: {mode: read, " +
				"server: s, tool: echo}\n", "", "control: names of their own",
		},
	} {
		cfg, problems := config.Parse("w.yaml", []byte(head+row.contracts))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", row.why, problems)
		}
		_, err := New(cfg, everything)
		got := ""
		for _, p := range asProblems(err) {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.Text, "this gives "), ",")
			got += fmt.Sprintf("%d:%d %s", p.At.Line, p.At.Column, name)
			if p.Code != "name.own" {
				t.Errorf("%s: %v", row.why, p)
			}
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}

func asProblems(err error) (out contract.Problems) {
	errors.As(err, &out)
	return out
}
