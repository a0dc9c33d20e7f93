package e2b

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestVariablesAreArguments: the variables that a client chooses are in the arguments that contracts judge.
func TestVariablesAreArguments(t *testing.T) {
	b := box{body: body{Env: map[string]string{"ALL": "1", "LD_PRELOAD": "/home/user/evil.so"}}}
	p := &process{config: config{Cmd: "ls", Args: []string{"-la"}, Envs: map[string]string{"ALL": "2"}}}
	if got := p.argv(b); !slices.Equal(got, []string{"env", "--", "ALL=2", "LD_PRELOAD=/home/user/evil.so", "ls", "-la"}) {
		t.Errorf("argv: %q", got)
	}
	if got := p.argv(box{}); !slices.Equal(got, []string{"env", "--", "ALL=2", "ls", "-la"}) {
		t.Errorf("argv with a variable of the command: %q", got)
	}
	if got := (&process{config: config{Cmd: "ls", Args: []string{"-la"}}}).argv(box{}); !slices.Equal(got, []string{"ls", "-la"}) {
		t.Errorf("control: %q", got)
	}
	for language, want := range map[string]string{
		"javascript": `Object.assign(process.env, {"A":"it's"}); `,
		"python":     `os.environ.update(json.loads("{\"A\":\"it's\"}"))` + "\n",
	} {
		if got, err := (box{}).setting(language, map[string]string{"A": "it's"}); err != nil || got != want {
			t.Errorf("%s: %q %v", language, got, err)
		}
	}
	set, err := (box{}).setting("bash", map[string]string{"A": "it's $HOME `id`"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", set+`printf %s "$A"`).Output()
	if err != nil || string(out) != "it's $HOME `id`" {
		t.Errorf("bash: %q %v", out, err)
	}
	if _, err := (box{}).setting("bash", map[string]string{"A;id": "1"}); err == nil || !strings.Contains(err.Error(), "variable of bash") {
		t.Errorf("a name that is none: %v", err)
	}
}
