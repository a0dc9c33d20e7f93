package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/config/starter"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
	"waldo/internal/testing/repo"
)

// corpusRow is one row of the corpus of approvals.
type corpusRow struct {
	ID, Class, Expect, Why string
	Input                  struct {
		Rules    json.RawMessage
		Call     json.RawMessage
		Remember string
		Channel  string
	}
}

// TestCorpusRules judges the corpus's rules about which approval holds for which call.
func TestCorpusRules(t *testing.T) {
	judged := 0
	for _, r := range corpus.Rows[corpusRow](t, "approval.jsonl", "rules") {
		if r.Input.Remember != "" || r.Input.Channel != "" {
			t.Logf("%s: %s: the approval room's", r.ID, r.Why)
			continue
		}
		judged++
		if got := judgeRow(t, r); !met(r.Expect, got) {
			t.Errorf("%s: %s: %s, want %s", r.ID, r.Why, got, r.Expect)
		}
	}
	if judged < 8 {
		t.Errorf("only %d rows judged", judged)
	}
}

// judgeRow writes the row's rules as contracts of ours and decides its call. A capability that
// several rules could name is called, as a direct tool with a role that has members.
func judgeRow(t *testing.T, r corpusRow) string {
	var rules []struct{ Tool, Approval string }
	if json.Unmarshal(r.Input.Rules, &rules) != nil {
		_, problems := config.Parse("w", []byte("capabilities: "+string(r.Input.Rules)+"\n"))
		if len(problems) > 0 {
			return "config_error"
		}
		return "taken"
	}
	text := "approval: {by: {manager: [alice]}}\ncapabilities:\n"
	for _, rule := range rules {
		approval := rule.Approval
		if when, ok := strings.CutPrefix(approval, "if "); ok {
			approval = fmt.Sprintf("{when: %q}", "args."+when)
		}
		text += fmt.Sprintf("  %q: {transport: direct, mode: write, approval: %s}\n", rule.Tool, approval)
	}
	cfg, problems := config.Parse("w", []byte(text))
	if len(problems) > 0 {
		return "config_error"
	}
	p, err := New(cfg, everything)
	if err != nil {
		return "config_error"
	}
	name, args := rules[0].Tool, string(r.Input.Call)
	if json.Unmarshal(r.Input.Call, &name) == nil {
		args = "{}"
	}
	return p.Decide(ask(t, name, args)).Effect.String()
}

// met reports whether an answer is at least as strict as the row expects.
func met(expect, got string) bool {
	switch expect {
	case "ask":
		return got == "ask" || got == "deny"
	case "ask_or_config_error":
		return got != "allow"
	case "config_error", "fail_closed":
		return got == "config_error"
	case "documented":
		return got == "config_error" // an unknown word: docs/contract.md lists the known ones
	}
	return false
}

func TestTighten(t *testing.T) {
	p := compileText(t, `servers: {s: {command: [a]}}
capabilities:
  s.read: {mode: read, approval: none}
  s.write: {mode: write, approval: none}
  s.high: {mode: high_risk, approval: none}
  s.asked: {mode: write, approval: always}
  s.clear: {mode: write, approval: {when: 'false'}}
  s.holds: {mode: write, approval: {when: 'true'}}
`, everything)
	for _, row := range []struct {
		why, name, annotations string
		effect                 Effect
		danger                 int
	}{
		{"nothing said", "s.read", `{}`, Allow, 1},
		{"destructive", "s.read", `{"destructiveHint":true}`, Ask, 3},
		{"destructive, and a lie beside it", "s.read", `{"destructiveHint":true,"readOnlyHint":true}`, Ask, 3},
		{"a destructive write", "s.write", `{"destructiveHint":true}`, Ask, 3},
		{"the operator knew", "s.high", `{"destructiveHint":true}`, Allow, 3},
		{"the operator's condition decides, and does not hold", "s.clear", `{"destructiveHint":true}`, Allow, 3},
		{"the operator's condition decides, and holds", "s.holds", `{"destructiveHint":true}`, Ask, 3},
		{"not read-only", "s.read", `{"readOnlyHint":false}`, Allow, 2},
		{"harmless, it says", "s.asked", `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}`, Ask, 2},
		{"harmless, it says of danger", "s.high", `{"readOnlyHint":true,"destructiveHint":false}`, Allow, 3},
		{"a lie of no contract", "s.none", `{"readOnlyHint":true}`, Deny, 3},
		{"not an object", "s.read", `[true]`, Allow, 1},
		{"not a boolean", "s.read", `{"destructiveHint":"yes"}`, Allow, 1},
	} {
		v, err := strictjson.Parse([]byte(row.annotations))
		if err != nil {
			t.Fatal(err)
		}
		c := ask(t, row.name, `{}`)
		before := p.Decide(c)
		c.Annotations = v
		if d := p.Decide(c); d.Effect != before.Effect || d.Danger != before.Danger {
			t.Errorf("%s: %s danger %d for a caller that saw no definition", row.why, d.Effect, d.Danger)
		}
		c.ToolDigest = "sha256:1"
		d := p.Decide(c)
		if d.Effect != row.effect || d.Danger != row.danger {
			t.Errorf("%s: %s danger %d %v, want %s danger %d", row.why, d.Effect, d.Danger, d.Reasons, row.effect, row.danger)
		}
		if d.Effect > before.Effect || d.Danger < before.Danger {
			t.Errorf("%s: looser than before: %s %d", row.why, d.Effect, d.Danger)
		}
	}
	if d := Tighten(p.Decide(ask(t, "s.read", `{}`)), strictjson.Value{}); d.Effect != Allow {
		t.Errorf("no annotations: %s", d.Effect)
	}
}

func TestExamples(t *testing.T) {
	const entry = "capabilities:\n  x.*:\n    mode: write\n    environments: [production]\n    approval: {when: " +
		"'args.n > 10', by: boss}\n    examples:\n"
	for _, row := range []struct{ example, code, why string }{
		{"{capability: x.a, args: {n: 1}, expect: deny}", "example.failed", "no transport tells how"},
		{"{capability: x.a, args: {n: 11}, expect: allow}", "example.failed", "expecting too much"},
		{"{capability: y.a, expect: deny}", "", "another name is refused by Parse"},
		{"{capability: x.b, args: {n: 1}, expect: allow}", "example.elsewhere", "another entry decides"},
	} {
		text := "servers: {x: {command: [a]}}\n" + entry + "      - " + row.example + "\n  x.b: {mode: read}\n"
		cfg, problems := config.Parse("w", []byte(text))
		if row.code == "" {
			if !problems.Has("example.elsewhere") {
				t.Errorf("%s: %v", row.why, problems)
			}
			continue
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		_, err := New(cfg, Machine{})
		if ps, ok := err.(contract.Problems); !ok || !ps.Has(row.code) || ps[0].At.Line != 8 {
			t.Errorf("%s: %v, want %s", row.why, err, row.code)
		}
	}
	good := "servers: {x: {command: [a]}}\n" + entry + "      - {capability: x.a, args: {n: 1}, expect: allow}\n" +
		"      - {capability: x.a, args: {n: 11}, expect: ask}\n      - {capability: x.a, expect: ask}\n"
	p := compileText(t, good, Machine{})
	if d := p.Decide(ask(t, "x.a", `{"n":1}`)); d.Effect != Deny {
		t.Errorf("an example passed, and the call that this machine cannot carry out is %s", d.Effect)
	}
}

// The configuration that docs/contract.md and `waldo init` show is sound, examples too.
func TestShownConfigurationsAreSound(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(repo.Root(t), "docs", "contract.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/contract.md shows no configuration")
	}
	compileText(t, text, everything)
	compileText(t, string(starter.Init("x")), everything)
}
