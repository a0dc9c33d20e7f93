package commands

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/testing/corpus"
)

func TestTable(t *testing.T) {
	all, err := parse(text)
	if err != nil || len(all) < 60 {
		t.Fatal(len(all), err)
	}
	for _, bad := range []string{"x", "flags: -a", "program: a b", "program: a\nprogram: a", "program: a\nflags: b",
		"program: a\noperands: any", "program: a\ndanger: 4", "program: a\nunknown: b", "program: a\nexecute: b", "program: a\nread: b", "program: a\nruns: b", "command: a"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("read: %q", bad)
		}
	}
	for name, r := range all {
		if first, _, sub := strings.Cut(name, " "); sub && r.operands == "" || !sub && r.operands == "" && first != "git" {
			t.Errorf("%s has no operands", name)
		}
		if r.danger < 1 || r.danger > 2 {
			t.Errorf("%s: danger %d", name, r.danger)
		}
	}
}

func TestJudge(t *testing.T) {
	allow := []string{"git", "ls", "cat", "grep", "rg", "sed", "find", "jq", "go", "npm", "cargo", "make", "python3 *", "date"}
	for _, c := range []struct {
		argv   string
		danger int
		code   string
		want   string // the command that runs, or a part of the reason
	}{
		{"ls -la src", 1, "", "ls -la src"},
		{"git status --short", 1, "", "git --no-pager "},
		{"git commit -m x", 2, "", " commit -m x"},
		{"git diff", 1, "", " diff --no-ext-diff --no-textconv"},
		{"git log --format=%G?", 1, "", " -c log.showSignature=false "},
		{"go list -json .", 1, "", "go list -buildvcs=false -json ."}, // else it runs git without waldo's options
		{"cargo tree", 2, "", "cargo tree --offline"},                 // it runs the compiler that the project names
		{"cargo metadata", 2, "", ""},
		{"go test ./...", 2, "", "go test ./..."},
		{"python3 -c print(1)", 2, "", "python3 -c print(1)"},
		{"rm -rf x", 0, "program.denied", `the contract does not allow the program "rm"; it allows git, ls`},
		{"make", 0, "program.rule", `waldo has no rule for the arguments of "make"; the operator can allow any with "make *"`},
		{"git push", 0, "argument.denied", "git runs with one of these first: --version, add, "},
		{"git -c core.pager=id log", 0, "argument.denied", "git runs with one of these first"},
		{"cat /etc/shadow", 0, "argument.denied", `cat: "/etc/shadow" is not below /workspace`},
		{"cat ../x", 0, "argument.denied", "not below /workspace"},
		{"cat /workspace/../etc/x", 0, "argument.denied", "not below /workspace"},
		{"cat", 0, "argument.denied", "it needs a file, or stdin"},
		{"find . -exec id ;", 0, "argument.denied", `the expression "-exec" is not allowed`},
		{"rg --pre=id x", 0, "argument.denied", `the option "--pre" is not allowed`},
		{"rg --pr id x", 0, "argument.denied", `the option "--pr" is not allowed`},
		{"grep -f /etc/shadow x", 0, "argument.denied", "not below /workspace"},
		{"sed -n 1,5p f", 1, "", "sed --sandbox -n 1,5p f"},
		{"sed s/a/b/w f", 0, "argument.denied", "can do more than select and change text"},
		{"jq .env.x f", 1, "", "jq .env.x f"},
		{"jq -ne env", 1, "", "jq -ne env"}, // it has no environment of anybody's
		{"jq . /etc/x", 0, "argument.denied", "not below /workspace"},
		{"date -s 2020-01-01", 0, "argument.denied", `the option "-s" is not allowed`},
		{"date 01020304", 0, "argument.denied", "a format begins with +"},
		{"go run x.go", 0, "argument.denied", "go runs with one of these first"},
		{"go test -exec id", 0, "argument.denied", `the option "-exec" is not allowed`},
	} {
		got, why := Judge(allow, strings.Fields(c.argv), false)
		text, code := strings.Join(got.Argv, " "), ""
		if why != nil {
			text, code = why.Text, why.Code
		}
		if got.Danger != c.danger || code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: danger %d, %s: %q", c.argv, got.Danger, code, text)
		}
	}
	if got, why := Judge(allow, []string{"cat"}, true); why != nil || got.Danger != 1 {
		t.Error("cat with stdin:", why)
	}
	if _, why := Judge(nil, []string{"ls"}, false); why == nil {
		t.Error("an empty list allows a program")
	}
	if danger, why := Weigh(call.Call{Capability: "cli"}, contract.Contract{Transport: contract.SandboxedExec}); danger != 0 || why == nil {
		t.Error("a call without arguments has danger", danger)
	}
	if danger, _ := Weigh(call.Call{Capability: "exec"}, contract.Contract{Transport: contract.SandboxedExec, Danger: 3}); danger != 3 {
		t.Error("the built-in exec is not judged here:", danger)
	}
}

func TestLimits(t *testing.T) {
	allow := []string{"echo"}
	if _, why := Judge(allow, slices.Repeat([]string{"echo"}, maxArguments), false); why != nil {
		t.Fatal("control: ", why)
	}
	for what, argv := range map[string][]string{
		"too many":      slices.Repeat([]string{"echo"}, maxArguments+1),
		"one too long":  {"echo", strings.Repeat("a", maxArgument+1)},
		"all too long":  {"echo", strings.Repeat("a", maxArgument), strings.Repeat("a", maxArgument)},
		"NUL":           {"echo", "a\x00b"},
		"none":          {},
		"an empty name": {""},
	} {
		if _, why := Judge(allow, argv, false); why == nil || why.Code != "args.invalid" {
			t.Errorf("%s: %v", what, why)
		}
	}
}

// row is a case of the corpora of commands.
type row struct {
	ID, Class, Expect string
	Input             struct {
		Allow, Argv      []string
		Shell            any   // a line, or true: the schema refuses that argument
		RepeatArgument   []any `json:"repeat_argument"`
		ArgumentOfLength int   `json:"argument_of_length"`
	}
}

// excused are rows that waldo answers otherwise, and why.
var excused = map[string]string{
	"commands/name-tricks/0031": "an option that ls does not have: ls would refuse it, too",
	"commands/cve-fact/0081":    "the kernel lets jq find modules in /workspace alone",
	"commands/cve-fact/0083":    "jq has no environment of anybody's (TestNarrowedEnvironment)",
	"commands/cve-fact/0084":    "an internal of jq, of the same environment",
	"commands/shell-safe/0016":  "grep has no option -g: grep would refuse it, too",
}

// plain splits a line that has no meaning for a shell beside spaces and quotes.
func plain(line string) (argv []string, ok bool) {
	word, open, quote := "", false, rune(0)
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '"' && strings.ContainsRune("$`\\", c):
			return nil, false
		case quote != 0:
			word += string(c)
		case c == '"' || c == '\'':
			quote, open = c, true
		case c == ' ':
			if open || word != "" {
				argv = append(argv, word)
			}
			word, open = "", false
		case strings.ContainsRune("|&;<>()$`\\{}*?[]#~!\n", c):
			return nil, false
		default:
			word += string(c)
		}
	}
	if open || word != "" {
		argv = append(argv, word)
	}
	return argv, quote == 0
}

// TestCorpora: every command of the corpora, through the function that decides about a call of cli. cli has no shell: a
// line is a command where it has no meaning but words, and is refused as the name of a program.
func TestCorpora(t *testing.T) {
	judged, shell := map[string]int{}, 0
	for _, file := range []string{"commands.jsonl", "commands_gtfobins.jsonl"} {
		for _, r := range corpus.Rows[row](t, file) {
			in := r.Input
			if line, ok := in.Shell.(string); ok && line != "" {
				if _, why := Judge(in.Allow, []string{line}, false); why == nil && strings.Contains(line, " ") {
					t.Errorf("%s: a line is a program: %s", r.ID, line)
				}
				argv, ok := plain(line)
				if !ok {
					shell++
					continue
				}
				in.Argv = argv
			}
			if n := len(in.RepeatArgument); n == 2 {
				for range int(in.RepeatArgument[1].(float64)) {
					in.Argv = append(in.Argv, "a")
				}
			}
			if in.ArgumentOfLength > 0 {
				in.Argv = append(in.Argv, strings.Repeat("a", in.ArgumentOfLength))
			}
			if in.Shell == true {
				continue
			}
			got, why := Judge(in.Allow, in.Argv, false)
			judged[r.Expect]++
			allowed := why == nil
			if excused[r.ID] != "" {
				continue
			}
			switch r.Expect {
			case "allow", "allow_if_isolated", "literal", "allow_literal":
				if !allowed {
					t.Errorf("%s: %q is refused: %s", r.ID, in.Argv, why.Text)
				} else if got.Danger != 1 {
					t.Errorf("%s: %q has danger %d", r.ID, in.Argv, got.Danger)
				}
			case "deny", "error", "ask", "deny_or_same_binary":
				if allowed {
					t.Errorf("%s: %q is allowed", r.ID, in.Argv)
				}
			case "deny_or_ignore", "no_side_effect": // arguments that the schema refuses; git on a hostile repository
			default:
				t.Errorf("%s: unknown expectation %q", r.ID, r.Expect)
			}
			if r.Expect == "literal" && !slices.Equal(got.Argv, in.Argv) {
				t.Errorf("%s: %q became %q", r.ID, in.Argv, got.Argv)
			}
		}
	}
	t.Log(judged, "lines for a shell:", shell)
}

// TestPrograms: a program that changed, or was not there, is refused.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	defer func(was []string) { folders = was }(folders)
	folders = []string{dir}
	at := filepath.Join(dir, "tool")
	if err := os.WriteFile(at, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	all := Find([]string{"tool", "absent", "../tool", filepath.Join("x", "tool")})
	if p, why := all.Check("tool"); p != at || why != nil || len(all) != 1 {
		t.Fatal("control: ", p, why, all)
	}
	if _, why := all.Check("absent"); why == nil || why.Code != "program.absent" {
		t.Error("absent: ", why)
	}
	if err := os.WriteFile(at, []byte("#!/bin/sh\nevil\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, why := all.Check("tool"); why == nil || why.Code != "program.changed" {
		t.Error("changed: ", why)
	}
	if _, why := Programs(nil).Check("tool"); why == nil {
		t.Error("no program is a program")
	}
}

// FuzzJudge: a command that may run begins with an allowed program, has its arguments in order, and names no path
// outside of /workspace as an operand of cat.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{"cat a", "cat -n -- /etc/x", "git log -3", "find . -name x", "sed -n 1p f", "cat -A ../x", "rg -e x -f y"} {
		f.Add(strings.ReplaceAll(s, " ", "\x01"))
	}
	allow := []string{"cat", "git", "find", "sed", "rg", "jq"}
	f.Fuzz(func(t *testing.T, s string) {
		argv := strings.Split(s, "\x01")
		c, why := Judge(allow, argv, false)
		if (why == nil) != (c.Danger > 0) {
			t.Fatalf("%q: danger %d, %v", argv, c.Danger, why)
		}
		if why != nil {
			return
		}
		if !slices.Contains(allow, c.Argv[0]) || c.Program != argv[0] || !strings.HasSuffix(strings.Join(c.Argv, "\x01"), strings.Join(argv[len(argv)-1:], "\x01")) {
			t.Fatalf("%q runs %q", argv, c.Argv)
		}
		for _, a := range argv[1:] {
			if argv[0] == "cat" && !strings.HasPrefix(a, "-") && (strings.HasPrefix(filepath.Clean("/workspace/"+a), "/workspace") == false ||
				strings.HasPrefix(a, "/") && !strings.HasPrefix(filepath.Clean(a), "/workspace")) {
				t.Fatalf("%q is allowed", argv)
			}
		}
	})
}
