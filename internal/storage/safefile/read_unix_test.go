//go:build unix

package safefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRead: what is not a regular file of a bounded size is refused at once, and the control is read.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("whole"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": at("whole"), "zero": "/dev/zero", "dangling": at("none")} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at("large"), MaxRead+1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"whole": "", "pipe": "is not a regular file", "link": "too many levels",
		"zero": "too many levels", "dangling": "too many levels", ".": "is not a regular file", "large": "has more than"} {
		b, err := Read(at(name))
		if want == "" && (err != nil || string(b) != "x") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
