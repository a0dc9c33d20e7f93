package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"waldo/internal/cli"

	"github.com/spf13/cobra"
)

// Every command stands in a group of waldo --help, says what it does in one line, and shows an
// example that begins with its own name.
func TestEveryCommandHasHelp(t *testing.T) {
	root := newRoot(withFeatures(&cli.Context{}))
	named := map[string]bool{}
	for _, g := range groups {
		for _, name := range g.commands {
			named[name] = true
		}
	}
	for _, c := range root.Commands() {
		if !c.Hidden && c.GroupID == "" {
			t.Errorf("waldo %s stands in no group of help.go", c.Name())
		}
		delete(named, c.Name())
	}
	for name := range named {
		t.Errorf("help.go lists %s, which is no command", name)
	}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 100 {
			t.Errorf("%s: its one line is %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its help shows no example of it: %q", c.CommandPath(), c.Example)
		}
		text := c.Short + " " + c.Long + c.LocalFlags().FlagUsages()
		if dead := retired.FindString(text); dead != "" {
			t.Errorf("%s: its help has the retired word %q", c.CommandPath(), dead)
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(root)
}

// retired are words of earlier versions that mean nothing to a user.
var retired = regexp.MustCompile(`(?i)\b(box|boxes|door|corridor|room)\b`)

// Texts of more than one word, which a user can read, have no retired word.
func TestTextsHaveNoRetiredWords(t *testing.T) {
	if !retired.MatchString("starting a box of isolation auto") {
		t.Fatal("control: the pattern finds nothing")
	}
	for _, root := range []string{".", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "sandboxtest") {
				return err
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				l, is := n.(*ast.BasicLit)
				if is && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
					if dead := retired.FindString(l.Value); dead != "" {
						t.Errorf("%s: the retired word %q in %.120s", set.Position(l.Pos()), dead, l.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The completion of each shell is a script that the shell takes, where the shell is here.
func TestCompletionScripts(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}} {
		var out, errw bytes.Buffer
		if code := run([]string{"completion", shell}, strings.NewReader(""), &out, &errw); code != 0 || out.Len() < 500 {
			t.Fatalf("%s: exit code %d, %d bytes: %s", shell, code, out.Len(), errw.String())
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // the script was written; judging it needs the shell
		}
		cmd := exec.Command(path, append(check, "/dev/stdin")...)
		cmd.Stdin = &out
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, said)
		}
	}
	config := filepath.Join(t.TempDir(), "waldo.yaml")
	text := "version: 1\nenvironment: production\ncapabilities:\n  run_python: {transport: sandboxed_exec, mode: read, " +
		"approval: none, environments: [staging]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WALDO_CONFIG", config)
	for line, want := range map[string]string{
		"install ": "claude-desktop", "import --from ": "goose", "": "install", "completion ": "fish",
		"run --isolation ": "gvisor", "run --lang ": "typescript", "tools --detail ": "basic", "log export --as ": "csv",
		"run --color ": "never", "log --effect ": "deny", "call ": "run_python", "help sandbox ": "create",
		"check --environment ": "production", "call --environment ": "staging",
	} {
		var out, errw bytes.Buffer
		run(append([]string{"__complete"}, strings.Split(line, " ")...), strings.NewReader(""), &out, &errw)
		if !strings.Contains("\n"+out.String(), "\n"+want) {
			t.Errorf("waldo %s<TAB> does not offer %s: %s", line, want, out.String())
		}
	}
}
