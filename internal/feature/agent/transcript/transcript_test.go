package transcript

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/model/id"
)

// TestTranscript: lines come back, one process at a time has the file, and a last line that a crash has cut is gone.
func TestTranscript(t *testing.T) {
	d, name := Dir(filepath.Join(t.TempDir(), "agents")), id.New(id.Session)
	f, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(name); !errors.Is(err, ErrBusy) {
		t.Errorf("created twice: %v", err)
	}
	if _, _, err := d.Open(name); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	for _, line := range []string{"one", "two"} {
		if err := f.Append([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Append([]byte("a\nb")); err == nil {
		t.Error("a line end in a line was taken")
	}
	if _, err := f.f.WriteString("thr"); err != nil { // a crash
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("created over its lines: %v", err)
	}
	begun := id.New(id.Session) // and killed before its first line
	if f, err = d.Create(begun); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Open(begun); !errors.Is(err, ErrNone) {
		t.Errorf("an empty one: %v", err)
	}
	if f, err = d.Create(begun); err != nil || f.Close() != nil || os.Remove(filepath.Join(string(d), begun+".jsonl")) != nil {
		t.Fatal(err)
	}
	f, lines, err := d.Open(name)
	if err != nil || fmt.Sprintf("%s", lines) != "[one two]" {
		t.Fatalf("%s: %v", lines, err)
	}
	if err := errors.Join(f.Append([]byte("three")), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(string(d), name+suffix))
	if err != nil || string(b) != "one\ntwo\nthree\n" {
		t.Errorf("%q: %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(string(d), name+suffix)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	if names, err := d.Names(); err != nil || fmt.Sprint(names) != "["+name+"]" {
		t.Errorf("%v: %v", names, err)
	}
}

// TestNames: a link, or a name that cannot be an id, opens nothing.
func TestNames(t *testing.T) {
	d := Dir(t.TempDir())
	for _, name := range []string{"", "../waldo", "n_x", "c_2al2m7nudkym2hav4gk4g3vjm6"} {
		if _, _, err := d.Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
		if _, err := d.Create(name); err == nil {
			t.Errorf("%q was created", name)
		}
	}
	name, target := id.New(id.Session), filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, []byte("x\n"), 0o600), os.Symlink(target, filepath.Join(string(d), name+suffix))); err != nil {
		t.Skip(err)
	}
	if _, _, err := d.Open(name); err == nil {
		t.Error("a link was opened")
	}
}
