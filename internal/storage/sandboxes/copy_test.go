package sandboxes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/storage/workspace"
)

func TestCopyInHoldsToTheLimits(t *testing.T) {
	m, _ := fresh(t)
	create(t, m, me, "a")
	_, w, done, err := m.Files(t.Context(), me, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 3<<20), 0o700); err != nil {
		t.Fatal(err)
	}
	l := limits()
	if err := CopyIn(t.Context(), w, big, workspace.Input, "", l); err != nil {
		t.Fatalf("control: %v", err)
	}
	if files, _ := w.List(workspace.Input, 9); len(files) != 1 || files[0].Name != "big" || !files[0].Exec {
		t.Errorf("%+v", files)
	}
	if err := CopyIn(t.Context(), w, big, workspace.Input, "again", l); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("more bytes than fit: %v", err)
	}
	small := filepath.Join(dir, "small")
	_ = os.WriteFile(small, []byte("x"), 0o600)
	l.Disk = 3<<20 + 4096 // a file takes a page of a running sandbox, however small
	if err := CopyIn(t.Context(), w, small, workspace.Input, "small", l); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := CopyIn(t.Context(), w, small, workspace.Input, "smaller", l); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("more pages than fit: %v", err)
	}
	l = limits()
	l.Inodes = 6 // the folder itself, two files, and the rest
	if err := CopyIn(t.Context(), w, small, workspace.Input, "d/e/f", l); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := CopyIn(t.Context(), w, small, workspace.Input, "d/e/g", l); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("more entries than fit: %v", err)
	}
	l.Inodes = 7
	if err := CopyIn(t.Context(), w, small, workspace.Input, "d/e2/g", l); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("more folders than fit: %v", err)
	}
	l.Inodes = 1
	if err := CopyIn(t.Context(), w, small, workspace.Input, "small", l); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("more files than fit: %v", err)
	}
	if err := CopyIn(t.Context(), w, "/dev/zero", workspace.Output, "zero", l); err == nil {
		t.Error("a device was copied")
	}
	if err := CopyIn(t.Context(), w, small, workspace.Output, "../../x", limits()); !errors.Is(err, workspace.ErrName) {
		t.Errorf("a name that climbs: %v", err)
	}
}

// A link in the folder that is copied to is replaced or refused, never written through.
func TestCopyOutFollowsNoLink(t *testing.T) {
	m, _ := fresh(t)
	create(t, m, me, "a")
	put(t, m, me, "a", "f", "hit")
	put(t, m, me, "a", "d/canary", "hit")
	_, w, done, err := m.Files(t.Context(), me, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	outside, to := t.TempDir(), t.TempDir()
	canary := filepath.Join(outside, "canary")
	if err := errors.Join(os.WriteFile(canary, []byte("untouched"), 0o600), os.Symlink(canary, filepath.Join(to, "f")),
		os.Symlink(outside, filepath.Join(to, "d"))); err != nil {
		t.Fatal(err)
	}
	if err := CopyOut(t.Context(), w, workspace.Output, "f", to); err != nil {
		t.Errorf("%v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(to, "f")); string(b) != "hit" {
		t.Errorf("control: copied %q", b)
	}
	if err := CopyOut(t.Context(), w, workspace.Output, "d", to); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("through a link: %v", err)
	}
	if b, _ := os.ReadFile(canary); string(b) != "untouched" {
		t.Errorf("the canary is %q", b)
	}
}

// TestCopyCancelled: a copy ends with its context, and leaves no part of the file.
func TestCopyCancelled(t *testing.T) {
	w, err := workspace.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	from := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(from, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CopyIn(ctx, w, from, workspace.Input, "", limits()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if files, err := w.List(workspace.Input, 9); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
	if err := CopyIn(t.Context(), w, from, workspace.Input, "", limits()); err != nil {
		t.Error("control: ", err)
	}
}
