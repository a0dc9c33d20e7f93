//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOfAnotherUser: neither a folder nor a file of another user is taken for waldo's own, with any content. The
// control is waldo's own.
func TestOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	p := packed{digest: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"} // of nothing
	for uid, ok := range map[int]bool{0: true, 4242: false} {
		dir := filepath.Join(t.TempDir(), "run")
		name := filepath.Join(dir, "gvisor")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(name, nil, 0o555), os.Chown(name, uid, uid)); err != nil {
			t.Fatal(err)
		}
		f, err := p.check(t.Context(), name)
		if err == nil {
			f.Close()
		}
		if (err == nil) != ok {
			t.Errorf("a file of user %d: %v", uid, err)
		}
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
		if err := private(dir); (err == nil) != ok {
			t.Errorf("a folder of user %d: %v", uid, err)
		}
	}
}

// TestSweepOwn: the rest of an earlier build is swept, and no other file.
func TestSweepOwn(t *testing.T) {
	dir, long := t.TempDir(), time.Now().Add(-2*staleAfter)
	for name, old := range map[string]bool{"gvisor-old": true, "gvisor-young": false, "other": true, "gvisor-keep": true} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if old {
			if err := os.Chtimes(at, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	packed{}.sweep(dir, "gvisor-keep")
	for name, stays := range map[string]bool{"gvisor-old": false, "gvisor-young": true, "other": true, "gvisor-keep": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}
