package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFollowed: files that a command names by a "#!" line, in a cluster of options, or by a virtual environment.
func TestFollowed(t *testing.T) {
	for _, x := range []struct {
		name string
		argv []string
		line string // of ./tool, with %s for the folder
		file string // that changes
	}{
		{"an interpreter", []string{"./tool"}, "#!%s/.venv/bin/python3", ".venv/bin/python3"},
		{"an interpreter by a shell", []string{"sh", "-c", "exec ./tool"}, "#! %s/odd+name -u", "odd+name"},
		{"an interpreter below the folder", []string{"./tool"}, "#!run/x", "run/x"},
		{"env -S", []string{"./tool"}, "#!/usr/bin/env -S A=1 sh ./x.sh", "x.sh"},
		{"a name with a space", []string{"./tool"}, "#!/bin/sh my file", "my file"},
		{"a second line", []string{"./tool"}, "#!./second", "third"},
		{"a cluster", []string{"sed", "-nfp.sed", "x"}, "", "p.sed"},
		{"an alias of git", []string{"git", "-c", "alias.x=!./hook.sh", "x"}, "", "hook.sh"},
		{"a long cluster", []string{"sed", "-nErzsufp.sed", "x"}, "", "p.sed"},
		{"a package behind a cluster", []string{"python3", "-Bmpkg"}, "", "pkg/deep/x.py"},
		{"a virtual environment", []string{".venv/bin/python3", "/opt/x.py"}, "", ".venv/pyvenv.cfg"},
		{"a virtual environment behind a line", []string{"./tool"}, "#!.venv/bin/python3", ".venv/pyvenv.cfg"},
		{"one beside its program", []string{".venv/bin/python3", "/opt/x.py"}, "", ".venv/bin/pyvenv.cfg"},
	} {
		t.Run(x.name, func(t *testing.T) {
			state, cfg, path := project(t, x.file, server(x.argv...))
			dir := filepath.Dir(cfg.File)
			put(t, filepath.Join(dir, "other"), "")
			put(t, filepath.Join(dir, "tool"), strings.ReplaceAll(x.line, "%s", dir)+"\n")
			put(t, filepath.Join(dir, "second"), "#!./third\n")
			if strings.HasPrefix(x.file, ".venv") && x.file != ".venv/bin/python3" {
				if err := os.MkdirAll(filepath.Join(dir, ".venv/bin"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("/bin/sh", filepath.Join(dir, ".venv/bin/python3")); err != nil {
					t.Fatal(err)
				}
			}
			keep(t, state, cfg)
			put(t, filepath.Join(dir, "other"), "evil")
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Fatalf("control: %s", refused)
			}
			put(t, path, "#!/bin/sh\nevil\n")
			want := fmt.Sprintf("server o: %s is not the program that was trusted with %s: read it, then run: "+
				"waldo trust %[2]s", path, cfg.File)
			if refused := starts(t, state, cfg); !slices.Equal(refused, []string{want}) {
				t.Errorf("changed: %q, want %q", refused, want)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			want = fmt.Sprintf("server o: %s is gone, and was trusted with %s: bring it back, or run: waldo trust %[2]s",
				path, cfg.File)
			if x.file == "pkg/deep/x.py" {
				return // a package's import fails then
			}
			if refused := starts(t, state, cfg); !slices.Equal(refused, []string{want}) {
				t.Errorf("gone: %q, want %q", refused, want)
			}
		})
	}
}

// TestLineBounds: programs that start each other by "#!" lines are bounded, and a file that is its own ends.
func TestLineBounds(t *testing.T) {
	state, cfg, path := project(t, "s0", server("./s0"))
	put(t, path, "#!./s0\n")
	if found, err := Programs(state, cfg); err != nil || len(found) != 1 {
		t.Fatalf("control, itself: %v %v", found, err)
	}
	for i := range maxScripts {
		put(t, fmt.Sprintf("%s%d", strings.TrimSuffix(path, "0"), i), fmt.Sprintf("#!./s%d\n", i+1))
	}
	put(t, strings.TrimSuffix(path, "0")+fmt.Sprint(maxScripts), "")
	if found, err := Programs(state, cfg); err != nil || len(found) != maxScripts+1 {
		t.Fatalf("control: %v %v", found, err)
	}
	put(t, strings.TrimSuffix(path, "0")+fmt.Sprint(maxScripts), "#!./end\n")
	if _, err := Programs(state, cfg); err == nil ||
		err.Error() != "the command of server o starts more than 5 programs by #! lines" {
		t.Errorf("%v", err)
	}
}

// TestPackages: the packages of a virtual environment are not covered, and waldo trust says so.
func TestPackages(t *testing.T) {
	_, cfg, path := project(t, ".venv/bin/python3", server(".venv/bin/python3", "-u"))
	if got := Uncovered(cfg); len(got) > 0 {
		t.Fatalf("control: %v", got)
	}
	venv := filepath.Dir(filepath.Dir(path))
	put(t, filepath.Join(venv, pyvenv), "home = /usr/bin\n")
	want := fmt.Sprintf("%s:3: trust.packages: server o runs outside of any sandbox in the virtual environment %s: "+
		"its packages and .pth files are not covered by this trust", cfg.File, venv)
	if got := Uncovered(cfg); len(got) != 1 || !strings.Contains(got.Error(), want) || got[0].Hint == "" {
		t.Errorf("%v, want %s", got, want)
	}
	server("./tool")(cfg)
	tool := filepath.Join(filepath.Dir(cfg.File), "tool")
	put(t, tool, "#!/usr/bin/env -S make -f\n")
	if got := Uncovered(cfg); len(got) != 1 || !strings.Contains(got.Error(), `outside of any sandbox with "make"`) {
		t.Errorf("a script of make: %v", got)
	}
	put(t, tool, "#!/bin/sh -e\n")
	if got := Uncovered(cfg); len(got) > 0 {
		t.Errorf("control, a script of a shell: %v", got)
	}
}
