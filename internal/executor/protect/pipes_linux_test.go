package protect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPipes: a pipe or socket that appears in a repository is taken out, because git waits at it. One that was there
// before stays, as that of git's own watcher.
func TestPipes(t *testing.T) {
	root := tree(t, map[string]string{".git/HEAD": "", ".git/objects/aa/x": "", ".git/objects/info/x": "",
		"n/.git/config": ""})
	pipe := func(names ...string) {
		for _, name := range names {
			if err := unix.Mkfifo(filepath.Join(root.Name(), name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	pipe(".git/fsmonitor--daemon.ipc", "outside.sock")
	r, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.Look(root)
	was := paths(before)
	if err != nil || !slices.Contains(was, "(.git/fsmonitor--daemon.ipc)") || !slices.Contains(was, "(outside.sock)") {
		t.Fatal(was, err)
	}
	want := []string{".git/git:gitdir", ".git/index", ".git/objects/aa/y", ".git/objects/info/y", "n/.git/HEAD"}
	pipe(want...)
	pipe("control") // git does not open it
	got, err := r.Appeared(root, before)
	if err != nil || !slices.Equal(paths(got), want) {
		t.Errorf("%v\n got %q\nwant %q", err, paths(got), want)
	}
	for _, f := range got {
		if err := Remove(root, f.Path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root.Name(), ".git/fsmonitor--daemon.ipc")); err != nil {
		t.Error(err)
	}
}
