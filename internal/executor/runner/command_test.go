package runner

import (
	"slices"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/executor/commands"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestCommand: a command is judged again at its run, and never runs with more danger than was decided.
func TestCommand(t *testing.T) {
	r := &Runner{Commands: commands.Find([]string{"git", "cat"})}
	if _, why := r.Commands.Check("git"); why != nil {
		t.Skip(why.Text)
	}
	for _, c := range []struct {
		args   string
		danger int
		code   string
	}{
		{`{"argv":["git","status"]}`, 1, ""},
		{`{"argv":["git","commit","-m","x"]}`, 2, ""},
		{`{"argv":["git","commit","-m","x"]}`, 1, "command.danger"},
		{`{"argv":["git","status"]}`, 0, "command.danger"},
		{`{"argv":["cat","/etc/passwd"]}`, 3, "argument.denied"},
		{`{"argv":["cat","a"],"dir":"../x"}`, 3, "argument.denied"},
		{`{"argv":["rm","a"]}`, 3, "program.denied"},
		{`{"argv":"git status"}`, 3, "args.invalid"},
	} {
		a, err := call.ParseArgs([]byte(c.args))
		if err != nil {
			t.Fatal(err)
		}
		j, why := r.program(policy.Decision{Danger: c.danger, Call: call.Call{Capability: "cli", Args: a},
			Contract: contract.Contract{Transport: contract.SandboxedExec, Programs: []string{"git", "cat"}}}, Options{})
		code := ""
		if why != nil {
			code = why.Code
		}
		if code != c.code || code == "" && !slices.Contains(j.argv, "/usr/bin/git") &&
			!slices.Contains(j.argv, "/usr/local/bin/git") {
			t.Errorf("%s at danger %d: %s, %q", c.args, c.danger, code, j.argv)
		}
	}
}
