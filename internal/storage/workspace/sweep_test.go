package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/id"
)

// Sweep deletes workspaces that were not opened for long, and nothing else.
func TestSweep(t *testing.T) {
	root := filepath.Join(t.TempDir(), "workspaces")
	month := 30 * 24 * time.Hour
	if gone, err := Sweep(root, time.Now(), nil); err != nil || len(gone) != 0 {
		t.Fatalf("where there are none: %v %v", gone, err)
	}
	make := func(age time.Duration) string {
		t.Helper()
		ident := id.New(id.Workspace)
		w, err := Open(root, ident)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(Output, "kept.txt", strings.NewReader("x"), 10); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(root, ident), at, at); err != nil {
			t.Fatal(err)
		}
		return ident
	}
	old, named, reopened, fresh := make(2*month), make(2*month), make(2*month), make(0)
	w, err := Open(root, reopened)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	link := id.New(id.Workspace)
	if err := os.Symlink(outside, filepath.Join(root, link)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "notes"), 0o700); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * month)
	if err := os.Chtimes(filepath.Join(root, "notes"), past, past); err != nil {
		t.Fatal(err)
	}
	gone, err := Sweep(root, time.Now().Add(-month), func(ident string) bool { return ident == named })
	if err != nil || len(gone) != 1 || gone[0] != old {
		t.Errorf("swept %v %v, want %s", gone, err, old)
	}
	for _, name := range []string{named, reopened, fresh, link, "notes"} {
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error("what a link points to was deleted")
	}
}
