package codefiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/feature/gen/codegen"
)

func generate(t *testing.T, server string, names ...string) []codegen.File {
	t.Helper()
	var tools []codegen.Tool
	for _, n := range names {
		tools = append(tools, codegen.Tool{Name: n})
	}
	files, err := codegen.Generate(codegen.Server{Name: server}, tools, codegen.Languages)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestWrite: a second run changes nothing, and files of tools that are gone are removed.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if done, err := Write(dir, "s", generate(t, "s", "a", "b")); err != nil || len(done.Written) != 8 {
		t.Fatalf("%v %v", done, err)
	}
	if done, err := Write(dir, "s", generate(t, "s", "a", "b")); err != nil || len(done.Written) != 0 ||
		len(done.Same) != 8 {
		t.Fatalf("again: %v %v", done, err)
	}
	own := filepath.Join(dir, "servers", "s", "mine.py")
	if err := os.WriteFile(own, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := Write(dir, "s", generate(t, "s", "b"))
	if err != nil || strings.Join(done.Removed, " ") != "servers/s/a.py servers/s/a.ts" {
		t.Fatalf("without a: %v %v", done, err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error("a file of another was removed")
	}
}

// TestWriteRefuses: a file that waldo gen did not write, or that was changed, stays, and nothing else is written.
func TestWriteRefuses(t *testing.T) {
	for why, put := range map[string]func(at string) error{
		"it was changed":          func(at string) error { return appendTo(at, "\nmine = 1\n") },
		"waldo gen did not write": func(at string) error { return os.WriteFile(at, []byte("mine\n"), 0o600) },
		"a.py is not replaced": func(at string) error {
			if err := os.Remove(at); err != nil {
				return err
			}
			return os.Symlink("b.py", at)
		},
	} {
		dir := t.TempDir()
		if _, err := Write(dir, "s", generate(t, "s", "a", "b")); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, "servers", "s", "a.py")
		if err := put(at); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(at)
		files := generate(t, "s", "a", "b", "c")
		for i := range files {
			if files[i].Path == "servers/s/a.py" { // as if the tool were another now
				other, err := codegen.Generate(codegen.Server{Name: "s"}, []codegen.Tool{{Name: "a", Title: "A"}},
					codegen.Languages)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range other {
					if f.Path == files[i].Path {
						files[i] = f
					}
				}
			}
		}
		if _, err := Write(dir, "s", files); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
		if after, _ := os.ReadFile(at); string(after) != string(before) {
			t.Errorf("%s: it was replaced", why)
		}
		if _, err := os.Stat(filepath.Join(dir, "servers", "s", "c.py")); err == nil {
			t.Errorf("%s: another file was written", why)
		}
	}
}

// TestWriteStaysInside: a link in the folder leads nowhere else, and a file of another server is not replaced.
func TestWriteStaysInside(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "servers")); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, "s", generate(t, "s", "a")); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("written elsewhere: %v", left)
	}
	dir = t.TempDir()
	if _, err := Write(dir, "a-b", generate(t, "a-b", "x")); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, "a_b", generate(t, "a_b", "x")); err == nil ||
		!strings.Contains(err.Error(), "of another server") {
		t.Errorf("a folder of another server: %v", err)
	}
}

func appendTo(at, text string) error {
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	return os.WriteFile(at, append(b, text...), 0o600)
}
