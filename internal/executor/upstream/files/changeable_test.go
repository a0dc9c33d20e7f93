package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestChangeable: a file that a server can change is neither run outside of a sandbox nor trusted, under any of its
// names. The control is the same configuration without a writable folder.
func TestChangeable(t *testing.T) {
	top := resolved(t.TempDir())
	dir := filepath.Join(top, "work")
	for _, name := range []string{"app", "in", "safe"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"run.sh", "app/__main__.py", "mod.py", "key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(top, "run.sh")
	if err := errors.Join(os.WriteFile(outside, nil, 0o755), os.Symlink(dir+"/in", top+"/link"),
		os.Symlink(outside, dir+"/out")); err != nil {
		t.Fatal(err)
	}
	at := contract.Position{File: filepath.Join(dir, "waldo.yaml")}
	writer := contract.Server{
		Name: "w", At: at, Command: []string{"/bin/true"},
		Mounts: []contract.Mount{{Target: "/project", From: ".", Writable: true, At: at}},
	}
	config := func(change func(c *contract.Config), writable bool) *contract.Config {
		w := writer
		w.Mounts = []contract.Mount{{Target: "/project", From: ".", Writable: writable, At: at}}
		c := &contract.Config{
			File: at.File, Servers: map[string]contract.Server{"w": w}, Secrets: map[string]contract.Secret{},
		}
		change(c)
		return c
	}
	server := func(argv ...string) func(c *contract.Config) {
		return func(c *contract.Config) {
			c.Servers["o"] = contract.Server{Name: "o", At: at, CommandAt: at, Placement: "outside", Command: argv}
		}
	}
	for name, change := range map[string]func(c *contract.Config){
		"a program":         server("./run.sh"),
		"through env":       server("env", "./run.sh"),
		"a folder":          server("python3", "./app"),
		"what is not there": server("python3", "./none"),
		"behind an option":  server("node", "--require=run.sh"),
		"a link out of it":  server("./out"),
		"the command of secret": func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", At: at, Spec: secret.Spec{Command: []string{"./run.sh"}}}
		},
		"the file of a secret": func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", At: at, Spec: secret.Spec{From: "file:key"}}
		},
		"notify": func(c *contract.Config) { c.Approval.Notify = []string{"./run.sh"} },
		"an input": func(c *contract.Config) {
			c.Contracts = []contract.Contract{{Pattern: "run_python", At: at, Input: "./in"}}
		},
		"an input by a link": func(c *contract.Config) {
			c.Contracts = []contract.Contract{{Pattern: "run_python", At: at, Input: top + "/link"}}
		},
		"a database": func(c *contract.Config) {
			c.Contracts = []contract.Contract{{Pattern: "sql.query", At: at, Database: "sqlite:in/shop.db",
				Keys: map[string]contract.Position{"url": at}}}
		},
		"a template": func(c *contract.Config) {
			c.Contracts = []contract.Contract{{Pattern: "exec", At: at, Template: "./in"}}
		},
	} {
		if faults := (Machine{}).Outside(config(change, false)); len(faults) != 0 {
			t.Errorf("%s, control: %v", name, faults)
		}
		faults := (Machine{}).Outside(config(change, true))
		if len(faults) != 1 || !faults[0].Refused || !strings.Contains(faults[0].Text, dir) {
			t.Errorf("%s: %v", name, faults)
		}
	}
	if faults := (Machine{}).Outside(config(server(outside, "--flag", "word"), true)); len(faults) != 0 {
		t.Errorf("a program elsewhere: %v", faults)
	}
	for from, ok := range map[string]bool{".": true, "./in": false, top + "/link": false, "..": true} {
		s := contract.Server{Name: "r", At: at, Mounts: []contract.Mount{{Target: "/r", From: from, At: at}}}
		shown, faults := Machine{}.For(config(func(*contract.Config) {}, true)).mounts(s)
		if (len(shown) == 1 && len(faults) == 0) != ok {
			t.Errorf("a mount from %s: %v %v", from, shown, faults)
		}
	}
}
