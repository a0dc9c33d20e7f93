package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

// TestSweep: files of a session go after their retention, unless the session is open or a named sandbox has them.
func TestSweep(t *testing.T) {
	h, _ := opened(t, "version: 1\n")
	old := time.Now().Add(-2 * Retention)
	folder := func() (ident, dir string) {
		ident = id.New(id.Workspace)
		dir = filepath.Join(h.State, "workspaces", ident)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return ident, dir
	}
	_, unused := folder()
	opened, inUse := folder()
	_, fresh := folder()
	if err := os.Chtimes(fresh, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Sessions.Open(Principal(), opened); err != nil {
		t.Fatal(err)
	}
	work := sandboxes.Sandbox{Name: "work", Owner: Owner(), Idle: time.Hour,
		Limits: sandbox.Limits{Wall: time.Second, CPU: time.Second, Memory: 1, Pids: 1, Files: 1, Disk: 1, Inodes: 1}}
	work, err := sandboxes.New(h.Store, time.Now).Create(t.Context(), work)
	if err != nil {
		t.Fatal(err)
	}
	ofSandbox := filepath.Join(h.State, "workspaces", work.Workspace)
	if err := errors.Join(os.MkdirAll(ofSandbox, 0o700), os.Chtimes(ofSandbox, old, old)); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(t.Context(), time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{unused: false, inUse: true, ofSandbox: true, fresh: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, wanted %v (unused %s, open %s, named %s)",
				filepath.Base(dir), err == nil, want, unused, inUse, ofSandbox)
		}
	}
}
