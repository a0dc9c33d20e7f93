//go:build linux

package loader

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNeeds: the files are those that the loader itself would take, and no others.
func TestNeeds(t *testing.T) {
	f, err := needs("/", []string{"/usr/bin"}, []string{"ls"})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Execute) != 2 || filepath.Base(f.Execute[0]) != "ls" || !strings.Contains(f.Execute[1], "ld-linux") {
		t.Errorf("to execute: %q, want ls and its loader", f.Execute)
	}
	out, err := exec.Command(f.Execute[1], "--list", f.Execute[0]).Output()
	if err != nil {
		t.Skip("no loader that lists libraries: ", err)
	}
	listed := 0
	for line := range strings.Lines(string(out)) {
		_, at, ok := strings.Cut(line, " => ")
		at, _, _ = strings.Cut(at, " (")
		if !ok {
			continue
		}
		listed++
		if at, err = filepath.EvalSymlinks(at); err != nil || !slices.Contains(append(f.Read, f.Execute...), at) {
			t.Errorf("%q is not among %q: %v", line, f.Read, err)
		}
	}
	if listed == 0 || slices.ContainsFunc(f.Read, func(p string) bool { return strings.HasPrefix(p, "/etc/passwd") }) {
		t.Errorf("%d libraries of %s; %q", listed, out, f.Read)
	}
	if _, err := needs("/", []string{"/usr/bin"}, []string{"ls", "no-such-program"}); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an absent program:", err)
	}
}

// TestScripts: a script needs the interpreter of its first line, and of env also the program that env starts. No link of a
// root leads out of it.
func TestScripts(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"bin/tool": "#!/usr/bin/env -S lua -x\n", "usr/bin/env": "env", "usr/bin/lua": "lua",
		"bin/plain": "#!/bin/sh -e\n", "bin/dash": "dash", "bin/loop": "#!/bin/loop\n"} {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"bin/sh": "/bin/dash", "bin/out": "../../../../../usr/bin/true"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"tool": "/bin/tool /usr/bin/env /usr/bin/lua", "plain": "/bin/plain /bin/dash", "loop": "/bin/loop", "out": "",
	} {
		f, err := needs(root, []string{"/bin", "/usr/bin"}, []string{name})
		if got := strings.Join(f.Execute, " "); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if got := Glob(root, "/usr/*/lu?"); !slices.Equal(got, []string{"/usr/bin/lua"}) {
		t.Error(got)
	}
}

func BenchmarkNeeds(b *testing.B) {
	for b.Loop() {
		if _, err := needs("/", []string{"/usr/bin"}, []string{"git"}); err != nil {
			b.Fatal(err)
		}
	}
}
