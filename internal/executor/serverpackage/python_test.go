package serverpackage

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestPython: the paths that this machine's Python reports are used, except folders that hold waldo's own files. Only
// pip's own index has its files at pip's own host.
func TestPython(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for Python is a shell script")
	}
	dir := t.TempDir()
	p := &Packages{Options: Options{State: filepath.Join(dir, "home", "state")}}
	t.Setenv("HOME", dir)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("UV_INDEX_URL", "")
	t.Setenv("PIP_INDEX_URL", "")
	if err := os.MkdirAll(p.State, 0o700); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "python3")
	say := func(prefix, more string) {
		answer := fmt.Sprintf(`{"exe": %q, "prefix": %q, "version": "3.11", "index": "https://index.example/simple",`+
			` "files": "files.example"%s}`, exe, prefix, more)
		if err := os.WriteFile(exe, []byte("#!/bin/sh\ncat <<'E'\n"+answer+"\nE\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct{ why, prefix, pip, index, want, refusal string }{
		{"the control", filepath.Join(dir, "python"), `, "pip": true`, "", "files.example", ""},
		{"one that every sandbox has", "/usr", `, "pip": true`, "", "files.example", ""},
		{"another index", filepath.Join(dir, "python"), `, "pip": true`, "https://pypi.example.com/simple", "", ""},
		{"another index, by a name of uv's", filepath.Join(dir, "python"), `, "pip": true`,
			"own=https://pypi.example.com/simple", "", ""},
		{"no pip", filepath.Join(dir, "python"), "", "", "", "has no pip"},
		{"a folder around waldo's own", filepath.Join(dir, "home"), `, "pip": true`, "", "", "holds waldo's own files"},
		{"waldo's own folder", p.State, `, "pip": true`, "", "", "holds waldo's own files"},
		{"everything", "/", `, "pip": true`, "", "", "holds waldo's own files"},
	} {
		say(row.prefix, row.pip)
		t.Setenv("UV_DEFAULT_INDEX", row.index)
		py, err := p.python(t.Context(), "")
		if row.refusal != "" {
			if err == nil || !strings.Contains(err.Error(), row.refusal) {
				t.Errorf("%s: %+v %v", row.why, py, err)
			}
			continue
		}
		if err != nil || py.Files != row.want || py.Version != "3.11" || (py.Prefix == "") != (row.prefix == "/usr") ||
			strings.Contains(py.Index, "pypi") != (row.index != "") || strings.Contains(py.Index, "own=") {
			t.Errorf("%s: %+v %v", row.why, py, err)
		}
	}
	if _, err := p.python(t.Context(), "3.77"); err == nil ||
		!strings.Contains(err.Error(), "python3.77 is not on this machine") {
		t.Errorf("a version that is not there: %v", err)
	}
}
