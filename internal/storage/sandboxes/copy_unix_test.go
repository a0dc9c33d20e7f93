//go:build unix

package sandboxes

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/storage/workspace"
)

// TestCopyOutOverAPipe: a copy replaces neither a pipe nor a device, such as /dev/null for root.
func TestCopyOutOverAPipe(t *testing.T) {
	m, _ := fresh(t)
	create(t, m, me, "a")
	put(t, m, me, "a", "f", "hit")
	_, w, done, err := m.Files(t.Context(), me, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), unix.Mkfifo(pipe, 0o600),
		os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	if err := CopyOut(t.Context(), w, workspace.Output, "f", file); err != nil {
		t.Errorf("control: %v", err)
	}
	for name, kind := range map[string]os.FileMode{pipe: os.ModeNamedPipe, link: os.ModeSymlink} {
		if err := CopyOut(t.Context(), w, workspace.Output, "f", name); !errors.Is(err, ErrKind) {
			t.Errorf("%s: %v", name, err)
		}
		if st, err := os.Lstat(name); err != nil || st.Mode().Type() != kind {
			t.Errorf("%s is %v: %v", name, st, err)
		}
	}
}
