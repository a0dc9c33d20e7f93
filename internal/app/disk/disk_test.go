package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUsed: each entry of the state directory is one part with the sizes of its regular files, the largest first. A
// link is not followed, and the total is the sum.
func TestUsed(t *testing.T) {
	state, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	put := func(path string, n int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(outside, 1000)
	put(filepath.Join(state, "waldo.db"), 10)
	put(filepath.Join(state, "log", "a"), 20)
	put(filepath.Join(state, "log", "more", "b"), 30)
	put(filepath.Join(state, "mine"), 1)
	if err := os.Symlink(outside, filepath.Join(state, "log", "link")); err != nil {
		t.Fatal(err)
	}
	all, total, err := Used(state)
	if err != nil {
		t.Fatal(err)
	}
	want := []Part{
		{"log", 50, 2, "audit log; log.keep"}, {"waldo.db", 10, 1, "approvals, sandboxes and other state"},
		{"mine", 1, 1, ""},
	}
	if len(all) != len(want) || total != (Part{"total", 61, 4, state}) {
		t.Fatalf("%v, %v", all, total)
	}
	for i, w := range want {
		if all[i] != w {
			t.Errorf("part %d is %v, wanted %v", i, all[i], w)
		}
	}
	if _, _, err := Used(filepath.Join(state, "absent")); err == nil {
		t.Error("a state directory that is not there has a size")
	}
}
