package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/model/contract"
	"waldo/internal/pkginstall"
)

// TestSourcePackages: installing a source package would run its build code. waldo refuses it.
func TestSourcePackages(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("python3 is not on this machine")
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("WALDO_CANARY", "canary-7d1e")
	for name, text := range map[string]string{
		"index/source/1.0.0/setup.py": "",
		"index/source/1.0.0/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"builder\"\n" +
			"backend-path = [\".\"]\n",
		"index/source/1.0.0/builder.py": "import os\nopen('/workspace/output/ran', 'w').write(repr(dict(os.environ)))\n",
		"waldo.yaml":                    "version: 1\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(pypi{filepath.Join(dir, "index")})
	defer srv.Close()
	t.Setenv("PIP_INDEX_URL", srv.URL+"/simple")
	h, err := withFeatures(&cli.Context{Config: filepath.Join(dir, "waldo.yaml"), State: filepath.Join(dir, "state")}).Open(t.Context(), app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, _, err := pkginstall.Parse([]string{"uvx", "source"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := h.Packages.Installer(t.Context(), contract.Server{Name: "source"}, w)
	if err != nil {
		t.Fatal(err)
	}
	run := in.Run
	var job pkginstall.Job
	in.Run = func(ctx context.Context, j pkginstall.Job) error { job = j; return run(ctx, j) }
	if _, err := in.Accept(t.Context(), w); err == nil || !strings.Contains(err.Error(), "waldo installs wheels alone") {
		t.Errorf("a source package: %v", err)
	}
	control := job // the same, without the refusal of source packages
	control.Argv = append([]string{"/bin/sh", "-c", `"$@"; true`, "sh"},
		slices.DeleteFunc(slices.Clone(job.Argv), func(a string) bool { return strings.HasPrefix(a, "--only-binary") })...)
	control.Seed, control.Out = t.TempDir(), t.TempDir()
	if err := run(t.Context(), control); err != nil {
		t.Error(err)
	}
	ran, err := os.ReadFile(filepath.Join(control.Out, "ran"))
	if err != nil || !strings.Contains(string(ran), "HOME") || strings.Contains(string(ran), "canary") {
		t.Errorf("control: %q %v", ran, err)
	}
}
