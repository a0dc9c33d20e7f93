package threatmodel

import (
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/config"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

const base = `version: 1
servers:
  desk: {command: [desk], network: {allow: [api.example.com]}}
capabilities:
  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, approval: always}
  desk.list: {mode: read, approval: none}
  desk.create: {mode: write, approval: {when: "args.priority == 'high'"}, rules: [{when: "args.n > 5", deny: true, reason: many}]}
  desk.drop: deny
  desk.move: {mode: write, confirm: true, approval: always}
redaction: {model: [secrets, email]}
`

func parse(t *testing.T, text string) *contract.Config {
	t.Helper()
	cfg, problems := config.Parse("waldo.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return cfg
}

// TestWider: each edit that lets somebody do more is found with its line; an edit that lets somebody do less is none.
func TestWider(t *testing.T) {
	committed, ok := Committed(Document(parse(t, base), nil))
	if !ok {
		t.Fatal("the document has no reach")
	}
	for _, row := range []struct {
		name, old, with string
		wider           bool
		line            int
	}{
		{"control", "desk.list", "desk.list", false, 0},
		{"a question less", "isolation: namespace, approval: always", "isolation: namespace, approval: none", true, 5},
		{"a question more", "desk.list: {mode: read, approval: none}", "desk.list: {mode: read, approval: always}", false, 0},
		{"less danger", "desk.create: {mode: write", "desk.create: {mode: read", true, 7},
		{"another condition", "'high'", "'low'", true, 7},
		{"a rule less", `, rules: [{when: "args.n > 5", deny: true, reason: many}]`, "", true, 7},
		{"a host more", "[api.example.com]", "[api.example.com, evil.example]", true, 3},
		{"a host less", ", network: {allow: [api.example.com]}", "", false, 0},
		{"outside", "network: {allow: [api.example.com]}", "placement: outside", true, 3},
		{"a secret", "network: {", "secrets: {T: \"env:T\"}, network: {", true, 3},
		{"a folder", "network: {", "mounts: {/opt/x: {from: /opt/x, writable: true}}, network: {", true, 3},
		{"a capability more", "  desk.list:", "  desk.add: {mode: write, approval: always}\n  desk.list:", true, 6},
		{"a pattern", "desk.list:", "desk.l*:", true, 6},
		{"a denial less", "  desk.drop: deny\n", "", true, 0},
		{"another command", "command: [desk]", "command: [other]", true, 3},
		{"variables", "network: {", "env: {LD_PRELOAD: /x}, network: {", true, 3},
		{"a preview less", "confirm: true, ", "", true, 9},
		{"no redaction", "redaction: {model: [secrets, email]}\n", "", true, 0},
		{"a name unprotected", "isolation: namespace,", "isolation: namespace, unprotect: [.env],", true, 5},
		{"lines moved", "capabilities:\n", "# a comment\ncapabilities:\n", false, 0},
		{"a capability less", "  desk.list: {mode: read, approval: none}\n", "", false, 0},
	} {
		if !strings.Contains(base, row.old) {
			t.Fatalf("%s: the base has no %q", row.name, row.old)
		}
		wider, _ := Compare(committed, Reach(parse(t, strings.Replace(base, row.old, row.with, 1))))
		at := func(c Change) bool { return c.At.Line == row.line }
		if row.wider != (len(wider) > 0) || row.wider && !slices.ContainsFunc(wider, at) {
			t.Errorf("%s: wider %+v, want %v at line %d", row.name, wider, row.wider, row.line)
		}
	}
}

// TestWiderBelow: a contract that is gone leaves its names to those that it was stricter than, which is a wider reach.
func TestWiderBelow(t *testing.T) {
	for _, row := range []struct {
		name, with, gone string
		wider            bool
	}{
		{"a question under a pattern", "g.*: {mode: write, approval: none}", "g.wipe: {mode: write, approval: always}", true},
		{"care under a pattern", "g.*: {mode: write, approval: always}", "g.wipe: {mode: high_risk, approval: always}", true},
		{"a pattern", "g.*: {mode: write, approval: none}", "g.create_*: {mode: write, approval: always}", true},
		{"a partner", "g.c*: {mode: write, approval: none}", "g.*e: {mode: write, approval: always}", true},
		{"control: the same", "g.*: {mode: write, approval: always}", "g.wipe: {mode: write, approval: always}", false},
		{"control: a denial", "g.*: deny", "g.wipe: {mode: write, approval: always}", false},
		{"control: one above", "g.wipe: {mode: write, approval: none}", "g.*: {mode: write, approval: always}", false},
		{"control: one between", "\"*\": {mode: write, approval: none}\n  g.*: {mode: write, approval: always}",
			"g.wipe: {mode: write, approval: always}", false},
		{"control: others", "h.*: {mode: write, approval: none}", "g.*: {mode: write, approval: always}", false},
	} {
		text := "version: 1\nservers: {g: {command: [g]}, h: {command: [h]}}\ncapabilities:\n  " + row.with + "\n"
		wider, narrower := Compare(facts(parse(t, text+"  "+row.gone+"\n")), Reach(parse(t, text)))
		if (len(wider) > 0) != row.wider {
			t.Errorf("%s: wider %+v, narrower %q", row.name, wider, narrower)
		}
	}
}

func facts(cfg *contract.Config) (all []string) {
	for _, f := range Reach(cfg) {
		all = append(all, f.String())
	}
	return all
}

// TestFolders: a folder is written where a tool that the contract decides about writes, whatever its mode.
func TestFolders(t *testing.T) {
	for text, writes := range map[string]bool{
		"files.*: {transport: direct, root: ./p, mode: read, approval: none}":                                    true,
		"files.read: {transport: direct, root: ./p, mode: read, approval: none}":                                 false,
		"files.ex*: {transport: direct, root: ./p, mode: read}\n  files.extract: {root: ./q, transport: direct}": false,
	} {
		all := facts(parse(t, "version: 1\ncapabilities:\n  "+text+"\n"))
		who, _, _ := strings.Cut(text, ":")
		if slices.Contains(all, who+": writes ./p") != writes || !slices.Contains(all, who+": reads ./p") {
			t.Errorf("%s: %q", text, all)
		}
	}
}

// TestSettings: a setting that a later waldo knows changes no digest of a configuration without it; a setting that is
// there does, also where its value is that of an absent one.
func TestSettings(t *testing.T) {
	type now struct {
		Command []string
		At      contract.Position
	}
	type later struct {
		now
		Name   string
		On     bool
		Limit  *int
		Hosts  []string
		Wall   time.Duration
		More   map[string]string
		MoreAt contract.Position
		Part   struct{ A, B int }
	}
	n, zero := now{Command: []string{"desk"}, At: contract.Position{File: "waldo.yaml", Line: 3}}, 0
	absent := digest(n)
	if got := digest(later{now: n}); got != absent || got == "unreadable" {
		t.Errorf("absent settings: %s, want %s", got, absent)
	}
	for _, with := range []later{
		{now: n, Name: "x"}, {now: n, On: true}, {now: n, Limit: &zero}, {now: n, Hosts: []string{}}, {now: n, Wall: 1},
		{now: n, More: map[string]string{}}, {now: n, Part: struct{ A, B int }{B: 1}},
	} {
		if got := digest(with); got == absent || got == "unreadable" {
			t.Errorf("%+v: %s, as without it", with, got)
		}
	}
	moved := n
	moved.At.Line = 9
	if digest(moved) != absent || digest(later{now: n, MoreAt: n.At}) != absent {
		t.Error("a place in the file changed the digest")
	}
}

// TestWords: changes are told in words, each with the line that a reader looks at.
func TestWords(t *testing.T) {
	for fact, want := range map[string]string{
		"no longer desk.drop: ! is denied":                 "no longer desk.drop: is denied",
		"desk.list: can be called without a question":      "desk.list: can be called without a question",
		"server desk: has the other settings command, env": "server desk: the settings have changed of command, env",
	} {
		if got := words(fact); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", fact, got)
		}
	}
	for at, want := range map[contract.Position]string{
		{File: "/x/waldo.yaml", Line: 3}: "waldo.yaml:3", {File: "/x/waldo.yaml"}: "waldo.yaml", {}: "built in",
	} {
		if got := place(at); got != want {
			t.Errorf("%+v: %s, want %s", at, got, want)
		}
	}
}

// TestMachine: the document says which isolation levels this machine lacks, and for which capabilities, and who reaches
// what with which secret.
func TestMachine(t *testing.T) {
	cfg := parse(t, strings.Replace(base, "network: {allow: [api.example.com]}",
		"secrets: {T: \"env:T\"}, network: {allow: [api.example.com]}", 1))
	reports := []sandbox.Report{{Driver: "namespace", Abilities: []sandbox.Ability{{Name: "user namespaces"}}},
		{Driver: "engine", OK: true}}
	doc := Document(cfg, reports)
	for _, want := range []string{
		"| namespace | no: their calls are refused | user namespaces | run_python |", "| engine | yes |  |  |",
		"| server desk |  |  | api.example.com | env:T (sees it) |",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the document has no %q:\n%s", want, doc)
		}
	}
	if strings.Contains(Document(cfg, nil), "This machine\n") {
		t.Error("a document without a machine has a section about it")
	}
}

// TestPicture: the picture is XML whatever names a configuration has.
func TestPicture(t *testing.T) {
	own := strings.Replace(base, "isolation: namespace", "isolation: namespace, network: {allow: [own.example.com]}", 1)
	svg := Picture(parse(t, own))
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"run_python", "server desk", "reaches api.example.com", "reaches own.example.com"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
	across := regexp.MustCompile(`M290 \d+ C[^"]* 600 `) // behind the boxes of servers
	if across.MatchString(svg) || !strings.Contains(svg, " H560") {
		t.Errorf("a capability's own reach goes through a server's box: %s", svg)
	}
}
