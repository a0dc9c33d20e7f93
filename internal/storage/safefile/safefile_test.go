package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReplace: a file is replaced whole, gets its mode, and leaves no other behind. Create leaves one
// that is there alone.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "f")
	read := func() string {
		t.Helper()
		b, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if err := Create(at, []byte("one"), 0o600); err != nil || read() != "one" {
		t.Fatalf("control: %v, %q", err, read())
	}
	if err := Create(at, []byte("two"), 0o600); !errors.Is(err, fs.ErrExist) || read() != "one" {
		t.Errorf("Create over a file: %v, %q", err, read())
	}
	if err := Replace(at, []byte("three"), 0o644); err != nil || read() != "three" {
		t.Errorf("Replace: %v, %q", err, read())
	}
	if i, err := os.Stat(at); err != nil || i.Mode().Perm() != 0o644 {
		t.Errorf("the mode is %v, %v", i.Mode(), err)
	}
	// A folder at the place cannot be replaced: the new content must not stay beside it.
	if err := os.MkdirAll(filepath.Join(dir, "d", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "d"), []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

// TestLock: a lock that one holds alone is not given to another, and a shared one only shared.
func TestLock(t *testing.T) {
	at := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(at, os.O_CREATE|os.O_RDWR|NoFollow, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b := open(), open()
	got := func(f *os.File, shared bool) bool {
		t.Helper()
		ok, err := TryLock(f, shared)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !got(a, false) {
		t.Fatal("control: a free lock was refused")
	}
	if got(b, false) || got(b, true) {
		t.Error("two hold the lock, one of them alone")
	}
	if err := Unlock(a); err != nil {
		t.Fatal(err)
	}
	if !got(a, true) || !got(b, true) {
		t.Error("two do not share the lock")
	}
	if got(b, false) {
		t.Error("one has the lock alone that another shares")
	}
	if err := errors.Join(Unlock(a), Unlock(b), Lock(b, false)); err != nil {
		t.Error(err)
	}
	if got(a, true) {
		t.Error("Lock did not take the lock")
	}
}

// TestNamed: a file whose name another has by now is not the one there, though the name is.
func TestNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	first, err := Claim(path)
	if err != nil || !Named(first) {
		t.Fatalf("control: %v", err)
	}
	defer first.Close()
	if err := os.Remove(path); err != nil {
		t.Skip(err) // an open file cannot be removed here
	}
	if Named(first) {
		t.Error("a removed file is there")
	}
	second, err := Claim(path)
	if err != nil || !Named(second) || Named(first) {
		t.Errorf("the first is there %v, the second %v: %v", Named(first), Named(second), err)
	}
	if err := Unclaim(second); err != nil {
		t.Error(err)
	}
}
