package hostfiles

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/app/fault"
	"waldo/internal/executor/upstream/files"
)

// A plan writes nothing. A target gets its servers when it is written, and the earlier text goes to a backup.
func TestPlanWritesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	from, to := filepath.Join(dir, ".mcp.json"), filepath.Join(dir, "waldo.yaml")
	for file, text := range map[string]string{
		from: `{"mcpServers":{"files":{"command":"/usr/bin/files-server"}}}`, to: "version: 1\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Import{State: filepath.Join(dir, "state"), To: to}
	r, err := m.Plan([]string{from})
	if err != nil || len(r.Servers) != 1 || len(r.Targets) != 1 || len(r.Targets[0].Diff) == 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "version: 1\n" {
		t.Errorf("a plan wrote %q: %v", b, err)
	}
	if err := m.WriteAll(t.Context(), r); err != nil || !r.Written {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(r.Targets[0].Backup); err != nil || string(b) != "version: 1\n" {
		t.Errorf("kept: %q %v", b, err)
	}
}

// An entry that cannot be read as a server is a problem of its own. A file without any server is an error.
func TestUnreadableEntries(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	for text, usage := range map[string]bool{
		`{"mcpServers":{"bad":{"command":7}}}`:                                             true,
		`{"mcpServers":{"bad":{"command":7},"files":{"command":"/usr/bin/files-server"}}}`: false,
	} {
		from := filepath.Join(dir, ".mcp.json")
		if err := os.WriteFile(from, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := (&Import{State: filepath.Join(dir, "state"), To: filepath.Join(dir, "waldo.yaml")}).Plan([]string{from})
		if err == nil {
			err = r.Err()
		}
		if f := (*fault.Error)(nil); !errors.As(err, &f) || f.Usage != usage || f.Problems == usage {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The modules of an installed npm package lie beside it, in the outermost node_modules above its script.
func TestBesideScript(t *testing.T) {
	dir := t.TempDir()
	installed := filepath.Join(dir, "app", "node_modules", "@scope", "server")
	nested := filepath.Join(installed, "node_modules", "other")
	project := filepath.Join(dir, "project")
	for _, d := range []string{installed, nested, filepath.Join(project, "dist")} {
		if err := os.MkdirAll(filepath.Join(d, "dist"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "package.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for script, want := range map[string]string{
		filepath.Join(installed, "dist", "index.js"):        filepath.Join(dir, "app"),
		filepath.Join(nested, "index.js"):                   filepath.Join(dir, "app"),
		filepath.Join(project, "dist", "dist", "server.js"): filepath.Join(project, "dist"),
		"/node_modules/x/index.js":                          "/node_modules/x",
	} {
		if got := besideScript([]files.Mount{{Target: script, Why: "script"}}); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}
