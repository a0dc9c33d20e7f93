//go:build unix

package safefile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCopyTree: files, links and folders are copied, also under names that are not UTF-8. No pipe is waited for, and a
// file that is longer than the room is left out, not cut.
func TestCopyTree(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	put := func(name string, size int) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("f/a", 10)
	put("f/\xff", 10)
	put("f/long", 100)
	put("f/d/last", 10)
	err := os.Symlink("/etc/passwd", filepath.Join(dir, "f/link"))
	if err == nil {
		err = unix.Mkfifo(filepath.Join(dir, "f/pipe"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	left, err := CopyTree(root, "f", to, 50)
	slices.Sort(left)
	if err != nil || !slices.Equal(left, []string{"f/long", "f/pipe"}) {
		t.Errorf("left out: %q %v", left, err)
	}
	for _, name := range []string{"f/a", "f/\xff", "f/d/last"} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Size() != 10 || info.Mode() != 0o600 {
			t.Errorf("%q: %v %v", name, info, err)
		}
	}
	if link, err := os.Readlink(filepath.Join(to, "f/link")); link != "/etc/passwd" {
		t.Errorf("the link: %q %v", link, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "f/long")); err == nil {
		t.Error("a part of a file was copied")
	}
	if left, err = CopyTree(root, "f/long", filepath.Join(to, "control"), 100); err != nil || len(left) > 0 {
		t.Errorf("with room: %q %v", left, err)
	}
	if _, err := CopyTree(root, "f/a", to, 50); err == nil {
		t.Error("a copy has taken the place of another")
	}
}

// TestReadIn: a file is read whole or not at all, and no pipe is waited for.
func TestReadIn(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 10), 0o600)
	if err == nil {
		err = unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if b, err := ReadIn(root, "f", 10); len(b) != 10 || err != nil {
		t.Errorf("control: %d bytes, %v", len(b), err)
	}
	if b, err := ReadIn(root, "f", 9); err == nil {
		t.Errorf("a file that is too long: %d bytes", len(b))
	}
	if _, err := ReadIn(root, "pipe", 10); err == nil {
		t.Error("a pipe was read")
	}
}
