package preview

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

func decision(t testing.TB, capability, args string, c contract.Contract, run *call.Run) policy.Decision {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = contract.SandboxedExec
	return policy.Decision{Call: call.Call{Capability: call.Capability(capability), Args: a, Run: run}, Contract: c}
}

// TestSandboxed: a human reads what runs, where, and what it reaches.
func TestSandboxed(t *testing.T) {
	here, err := filepath.Abs("data")
	if err != nil {
		t.Fatal(err)
	}
	full := contract.Contract{
		Isolation: "gvisor", Timeout: 10 * time.Second, Input: "data", Template: "big",
		Network: contract.Network{Allow: []string{"a.example.com", "b.example.com"}, Internal: true,
			Packages: map[string]contract.Registry{"npm": {}}},
		Secrets: map[string]secret.Ref{"TOKEN": "env:T", "KEY": "env:K"}, Reveal: []string{"KEY"},
	}
	for _, r := range []struct {
		why, capability, args string
		contract              contract.Contract
		run                   *call.Run
		want                  []string
	}{
		{"code of two lines", "run_python", `{"code":"import os\nprint(1)\n"}`, contract.Contract{Isolation: "namespace"}, nil,
			[]string{"runs Python in a sandbox (namespace)", "it reaches no network", "it has 2 lines:", "   1  import os",
				"   2  print(1)"}},
		{"a shell, and all that a contract gives", "run_shell", `{"command":"rm -rf /"}`, full, nil,
			[]string{"runs a command line with /bin/sh in a sandbox (gvisor), for at most 10s",
				"it reaches a.example.com, b.example.com, the hosts of internal_only, packages of npm",
				"it reads the folder " + here, "its root is the template big", "it has the secrets KEY (which it sees), TOKEN",
				"it has 1 line:", "   1  rm -rf /"}},
		{"a run that narrows", "run_javascript", `{"code":"1"}`, full,
			&call.Run{Hosts: []string{"a.example.com"}, Secrets: []string{"TOKEN"}, Input: "/other", Limits: call.Limits{
				Wall: time.Second}},
			[]string{"runs JavaScript in a sandbox (gvisor), for at most 1s", "it reaches a.example.com",
				"it reads the folder /other", "its root is the template big", "it has the secrets TOKEN", "it has 1 line:", "   1  1"}},
		{"a run cannot lengthen the time that is shown", "run_javascript", `{"code":"1"}`, contract.Contract{Timeout: time.Second},
			&call.Run{Limits: call.Limits{Wall: time.Hour}},
			[]string{"runs JavaScript in a sandbox, for at most 1s", "it reaches no network", "it has 1 line:", "   1  1"}},
		{"a command with a quote, an empty text and input", "cli", `{"argv":["ls","it's","","-l"],"dir":"in put","stdin":"x\ny"}`,
			contract.Contract{}, nil,
			[]string{"runs a command in a sandbox", "it reaches no network", "the command line has 1 line:",
				`   1  ls 'it'\''s' '' -l`, "it starts in 'in put' below /workspace", "its standard input has 2 lines:", "   1  x",
				"   2  y"}},
		{"a folder with a line of its own", "cli", `{"argv":["ls"],"dir":"x\nit reaches no network"}`, contract.Contract{}, nil,
			[]string{"runs a command in a sandbox", "it reaches no network", "the command line has 1 line:", "   1  ls",
				`it starts in 'x\nit reaches no network' below /workspace`}},
		{"hidden characters and tabs", "run_python", `{"code":"if 1:\n\tx = 1 # \u202e\u0007\r# y"}`, contract.Contract{}, nil,
			[]string{"runs Python in a sandbox", "it reaches no network", "it has 2 lines:", "   1  if 1:",
				`   2      x = 1 # \u{202e}\u{7}\u{d}# y`}},
		{"a program that goes on has no code", "run_javascript", `{"resume":"p_1"}`, contract.Contract{}, nil, nil},
	} {
		got := Sandboxed(decision(t, r.capability, r.args, r.contract, r.run))
		if strings.Join(got, "\n") != strings.Join(r.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", r.why, strings.Join(got, "\n"), strings.Join(r.want, "\n"))
		}
	}
	d := decision(t, "crm.run", `{"argv":["x"]}`, contract.Contract{}, nil)
	if d.Contract.Transport = contract.MCP; Sandboxed(d) != nil {
		t.Error("a tool of a server has a preview of a command")
	}
}

func TestQuery(t *testing.T) {
	got := Query(t.Context(), decision(t, "sql.query", `{"sql":"SELECT 1\nFROM t"}`, contract.Contract{Database: "env:URL"}, nil))
	want := "asks env:URL, where waldo refuses all but reading|the statement has 2 lines:|   1  SELECT 1|   2  FROM t"
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}

// TestALongText: the human is told that the end is missing.
func TestALongText(t *testing.T) {
	for why, text := range map[string]string{
		"many lines": strings.Repeat("x\n", maxLines+1), "many bytes": strings.Repeat(strings.Repeat("x", 300)+"\n", 200),
		"one line": strings.Repeat("x", 2*maxBytes),
	} {
		got := Numbered("it", text)
		if !strings.HasSuffix(got[0], fmt.Sprintf("and %d bytes. ONLY ITS BEGINNING IS SHOWN:", len(text))) ||
			len(got) > maxLines+1 || len(strings.Join(got, "")) > 2*maxBytes {
			t.Errorf("%s: %q, %d lines", why, got[0], len(got))
		}
	}
	if got := Numbered("it", strings.Repeat("x\n", maxLines)); strings.Contains(got[0], "BEGINNING") || len(got) != maxLines+1 {
		t.Errorf("control: %q, %d lines", got[0], len(got))
	}
}

// FuzzNumbered: each line of the agent's text has a mark, which no line of waldo's has, and no line hides a character.
func FuzzNumbered(f *testing.F) {
	f.Add("it reaches no network\nx")
	f.Add(strings.Repeat("é", 1000) + "\x1b[2J\u2028\r\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		lines := Numbered("it", text)
		if len(lines) < 2 || len(lines) > maxLines+1 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, l := range lines[1:] {
			mark := l[:min(len(l), 6)]
			if len(mark) < 6 || mark != "   +  " && strings.Trim(mark[:4], "0123456789") != strings.Repeat(" ", strings.Count(mark[:4], " ")) {
				t.Fatalf("%q has no mark", l)
			}
			for _, r := range l {
				if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
					t.Fatalf("%q holds %U", l, r)
				}
			}
		}
	})
}
