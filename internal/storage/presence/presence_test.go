package presence

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/model/id"
)

// A process is at work while it holds its file, and gone when it has closed it or was killed.
func TestAsker(t *testing.T) {
	state := t.TempDir()
	gone := Gone(state)
	a, err := New(state)
	if err != nil {
		t.Fatal(err)
	}
	if gone(a.Name) {
		t.Error("control: a process at work is gone")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	killed := id.New("q_") // leaves its file, and no lock on it
	if err := os.WriteFile(filepath.Join(state, Folder, killed), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{a.Name, killed, "", "../../etc/passwd"} {
		if !gone(name) {
			t.Errorf("%q is at work", name)
		}
	}
	all := Killed(state)
	if len(all) != 1 || all[0].Name != killed || len(Killed(state)) > 0 {
		t.Fatalf("killed: %v", all)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(state, Folder)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
