package trust

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// project is a trusted configuration with one file, in the working folder.
func project(
	t *testing.T, file string, change func(c *contract.Config),
) (state string, cfg *contract.Config, path string) {
	t.Helper()
	state, dir := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	path = filepath.Join(dir, file)
	put(t, path, "#!/bin/sh\n")
	cfg = &contract.Config{File: filepath.Join(dir, "waldo.yaml"), Digest: "sha256:1", Found: true,
		Servers: map[string]contract.Server{}, Secrets: map[string]contract.Secret{}}
	change(cfg)
	return state, cfg, path
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// keep records a configuration as waldo trust does.
func keep(t *testing.T, state string, cfg *contract.Config) {
	t.Helper()
	found, err := Programs(state, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(state, map[string]Record{cfg.File: {Digest: cfg.Digest, Lock: NoLock, Programs: found}}); err != nil {
		t.Fatal(err)
	}
}

// starts returns the refusals of everything that a configuration starts outside of sandboxes.
func starts(t *testing.T, state string, cfg *contract.Config) (refused []string) {
	t.Helper()
	trusted, err := TrustedPrograms(state, cfg)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(err error) {
		if err != nil {
			refused = append(refused, err.Error())
		}
	}
	for _, s := range cfg.Servers {
		tell(Unchanged(state, cfg, trusted, s))
	}
	for _, s := range cfg.Secrets {
		tell(UnchangedCommand(state, cfg, s.Spec.Command))
	}
	if len(cfg.Approval.Notify) > 0 {
		tell(UnchangedCommand(state, cfg, cfg.Approval.Notify))
	}
	return refused
}

func server(argv ...string) func(c *contract.Config) {
	return func(c *contract.Config) {
		at := contract.Position{File: c.File, Line: 3}
		c.Servers["o"] = contract.Server{Name: "o", At: at, CommandAt: at, Placement: "outside", Command: argv}
	}
}

// TestCommands: a file that a command names in the folder starts only as it was trusted.
func TestCommands(t *testing.T) {
	for _, x := range []struct {
		name, file string
		change     func(c *contract.Config)
	}{
		{"a program", "srv.py", server("./srv.py")},
		{"a script", "srv.py", server("python3", "./srv.py")},
		{"a bare script", "srv.py", server("python3", "srv.py")},
		{"behind options", "srv.py", server("python3", "-Xutf8", "-W", "ignore", "./srv.py")},
		{"env", "srv.py", server("env", "python3", "./srv.py")},
		{"env -S", "srv.py", server("env", "-S", "python3 ./srv.py")},
		{"nice", "srv.py", server("/usr/bin/nice", "-n", "5", "python3", "./srv.py")},
		{"a shell's text", "srv.py", server("sh", "-c", "exec python3 ./srv.py")},
		{"a quoted word", "my srv.py", server("sh", "-c", "exec python3 './my srv.py'")},
		{"a shell in a folder", "sub/srv.py", server("sh", "-c", "cd sub && exec ./srv.py")},
		{"a shell in a folder, briefly", "sub/srv.py", server("bash", "-c", "cd sub; ./srv.py")},
		{"env in a folder", "sub/srv.py", server("env", "--chdir=sub", "./srv.py")},
		{"after =", "hook.js", server("node", "--require=./hook.js", "/opt/x.js")},
		{"behind a letter", "hook.js", server("node", "-r./hook.js", "/opt/x.js")},
		{"without its ending", "hook.js", server("node", "-e", "require('./hook')")},
		{"a folder of Python", "app/__main__.py", server("python3", "./app")},
		{"a folder of Node", "app/index.js", server("node", "./app")},
		{"a module", "srv.py", server("python3", "-m", "srv")},
		{"a module after its letter", "srv.py", server("python3", "-msrv")},
		{"a module of a package", "pkg/srv.py", server("python3", "-m", "pkg.srv")},
		{"a file of a package", "pkg/deep/other.py", server("python3", "-um", "pkg")},
		{"a file of a package after its letter", "pkg/deep/other.py", server("python3", "-mpkg.tool")},
		{"a module in Python's text", "srv.py", server("python3", "-c", "import srv")},
		{"a module in a folder of its path", "lib/srv.py", func(c *contract.Config) {
			server("python3", "-m", "srv")(c)
			s := c.Servers["o"]
			s.Env = map[string]string{"PYTHONPATH": filepath.Join(filepath.Dir(c.File), "lib")}
			c.Servers["o"] = s
		}},
		{"a file in its environment", "pre.js", func(c *contract.Config) {
			server("node", "/opt/x.js")(c)
			s := c.Servers["o"]
			s.Env = map[string]string{"NODE_OPTIONS": "--require=./pre.js"}
			c.Servers["o"] = s
		}},
		{"the command of a secret", "get.sh", func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", Spec: secret.Spec{Command: []string{"./get.sh"}}}
		}},
		{"a script of a secret", "get.sh", func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", Spec: secret.Spec{Command: []string{"sh", "./get.sh"}}}
		}},
		{"notify", "not.sh", func(c *contract.Config) { c.Approval.Notify = []string{"./not.sh"} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			state, cfg, path := project(t, x.file, x.change)
			keep(t, state, cfg)
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Fatalf("control: %s", refused)
			}
			put(t, path, "#!/bin/sh\nevil\n")
			want := fmt.Sprintf("%s is not the program that was trusted with %s: read it, then run: waldo trust %s",
				path, cfg.File, cfg.File)
			if len(cfg.Servers) > 0 {
				want = "server o: " + want
			}
			if refused := starts(t, state, cfg); !slices.Equal(refused, []string{want}) {
				t.Errorf("a changed file: %q, want %q", refused, want)
			}
			if cfg.Found = false; len(cfg.Servers) == 0 && len(starts(t, state, cfg)) > 0 {
				t.Error("a configuration that the operator named is refused")
			}
			cfg.Found = true
			keep(t, state, cfg)
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Errorf("trusted again: %s", refused)
			}
		})
	}
}

// TestAppeared: a file that comes to be what a command names was not trusted. So is one of a foreign working folder.
func TestAppeared(t *testing.T) {
	state, cfg, path := project(t, "srv.py", server("env", "python3", "-m", "srv"))
	keep(t, state, cfg)
	put(t, filepath.Join(filepath.Dir(path), "srv", "__main__.py"), "evil")
	if refused := starts(t, state, cfg); len(refused) != 1 ||
		!strings.Contains(refused[0], "srv/__main__.py is not the program") {
		t.Errorf("a package in place of the module: %q", refused)
	}
	state, cfg, _ = project(t, "get.sh", func(c *contract.Config) { c.Approval.Notify = []string{"./get.sh"} })
	keep(t, state, cfg)
	foreign := t.TempDir()
	t.Chdir(foreign)
	if refused := starts(t, state, cfg); len(refused) > 0 {
		t.Errorf("control: another working folder: %q", refused)
	}
	put(t, filepath.Join(foreign, "get.sh"), "evil")
	if refused := starts(t, state, cfg); len(refused) != 1 ||
		!strings.Contains(refused[0], foreign+"/get.sh is not the program") {
		t.Errorf("a file of a foreign working folder: %q", refused)
	}
}

// TestOutside: files outside of the folder are not covered, since who writes to the folder cannot change them.
func TestOutside(t *testing.T) {
	away := filepath.Join(t.TempDir(), "x.sh")
	put(t, away, "")
	state, cfg, _ := project(t, "a/x.sh", server("sh", away, "../out.sh", ".."))
	put(t, filepath.Join(filepath.Dir(filepath.Dir(cfg.File)), "out.sh"), "")
	put(t, filepath.Join(filepath.Dir(filepath.Dir(cfg.File)), "index.js"), "")
	if found, err := Programs(state, cfg); err != nil || len(found) > 0 {
		t.Errorf("%v %v", found, err)
	}
	server("sh", away, "a/../../"+filepath.Base(filepath.Dir(cfg.File))+"/a/x.sh")(cfg)
	if found, err := Programs(state, cfg); err != nil || len(found) != 1 {
		t.Errorf("control, through the folder above: %v %v", found, err)
	}
}

// TestSearched: a program that PATH finds in the folder is one of its files.
func TestSearched(t *testing.T) {
	state, cfg, path := project(t, "bin/tool", server("env", "tool"))
	t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	keep(t, state, cfg)
	if refused := starts(t, state, cfg); len(refused) > 0 {
		t.Fatalf("control: %q", refused)
	}
	put(t, path, "evil")
	if refused := starts(t, state, cfg); len(refused) != 1 {
		t.Errorf("%q", refused)
	}
}

// TestBounds: a configuration whose programs cannot all be read is not trusted.
func TestBounds(t *testing.T) {
	state, cfg, path := project(t, "pkg/a.py", server("python3", "-m", "pkg"))
	if found, err := Programs(state, cfg); err != nil || !slices.Contains(slices.Collect(maps.Keys(found)), path) {
		t.Fatalf("control: %v %v", found, err)
	}
	if err := os.Truncate(path, maxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Programs(state, cfg); err == nil || !strings.Contains(err.Error(), "more than 1000 files or 256 MiB") {
		t.Errorf("too large: %v", err)
	}
	put(t, path, "")
	for i := range maxFiles {
		put(t, fmt.Sprintf("%s%d.py", path, i), "")
	}
	if _, err := Programs(state, cfg); err == nil || !strings.Contains(err.Error(), "more than 1000 files or 256 MiB") {
		t.Errorf("too many: %v", err)
	}
	words := strings.Repeat("x ", maxPieces/2)
	server("sh", "-c", words)(cfg)
	if _, err := Programs(state, cfg); err != nil {
		t.Fatalf("control: %v", err)
	}
	for i := range maxPlaces / (maxPieces / 2) {
		put(t, filepath.Join(filepath.Dir(cfg.File), fmt.Sprintf("d%d", i), "x"), "")
		words += fmt.Sprintf("d%d ", i)
	}
	server("sh", "-c", words)(cfg)
	if _, err := Programs(state, cfg); err == nil || !strings.Contains(err.Error(), "folders in") {
		t.Errorf("too many folders: %v", err)
	}
	server("sh", "-c", strings.Repeat("x ", maxPieces))(cfg)
	if _, err := Programs(state, cfg); err == nil || !strings.Contains(err.Error(), "has more than 2000 words") {
		t.Errorf("too many words: %v", err)
	}
}

// TestUncovered: a command that finds its code by itself is warned of.
func TestUncovered(t *testing.T) {
	for _, x := range []struct {
		argv []string
		why  string // empty: no warning
	}{
		{[]string{"python3", "./srv.py"}, ""},
		{[]string{"env", "python3", "-u", "./srv.py"}, ""},
		{[]string{"python3", "-m", "srv"}, "-m"},
		{[]string{"npm", "run", "serve"}, "npm"},
		{[]string{"env", "make", "serve"}, "make"},
		{[]string{"Rscript", "./x.R"}, "Rscript"},
		{[]string{"env", "terraform", "output"}, "terraform"},
		{[]string{"docker", "compose", "run"}, "docker"},
		{[]string{"sh", "-c", "./s*"}, "-c"},
		{[]string{"node", "-e", "x"}, "-e"},
		{[]string{"node", "./app"}, "./app"},
		{[]string{"node", "app"}, "app"},
		{[]string{"java", "-cp=app", "Main"}, "-cp=app"},
		{[]string{"python3", "-msrv"}, "-msrv"},
		{[]string{"bash", "-cx", "./s*"}, "-cx"},
		{[]string{"env", "python3", "./none"}, ""},
		{[]string{"env", "python3", "/usr"}, ""},
	} {
		_, cfg, _ := project(t, "app/index.js", server(x.argv...))
		got := Uncovered(cfg)
		want := fmt.Sprintf("%s:3: trust.uncovered: server o runs outside of any sandbox with %q: "+
			"what that loads from %s is not covered by this trust",
			cfg.File, x.why, filepath.Dir(cfg.File))
		switch {
		case x.why == "" && len(got) > 0:
			t.Errorf("%q: %v", x.argv, got)
		case x.why != "" && (len(got) != 1 || !strings.Contains(got.Error(), want) || got[0].Hint == ""):
			t.Errorf("%q: %v, want %s", x.argv, got, want)
		}
	}
}
