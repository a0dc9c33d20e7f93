package presence

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"waldo/internal/model/id"
	"waldo/internal/testing/storetest"
)

// A process is at work while it holds its file, and gone when it has closed it or was killed.
func TestAsker(t *testing.T) {
	state := t.TempDir()
	s, err := storetest.Open(t, state)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	gone := Gone(s)
	a, err := New(s)
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
	all := Killed(s)
	if len(all) != 1 || all[0].Name != killed || len(Killed(s)) > 0 {
		t.Fatalf("killed: %v", all)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(state, Folder)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Processes that look for killed ones while others start take nobody for killed who is at work.
func TestStartAmongLookers(t *testing.T) {
	s, err := storetest.Open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan struct{})
	var lookers sync.WaitGroup
	for range 4 {
		lookers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, p := range Killed(s) {
					_ = p.Close()
				}
			}
		})
	}
	gone := Gone(s)
	for i := range 500 {
		p, err := New(s)
		if err != nil || p == nil {
			t.Fatalf("start %d: %v %v", i, p, err)
		}
		if gone(p.Name) {
			t.Fatalf("start %d: gone while at work", i)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	lookers.Wait()
}

// A process that left what it had to record counts as killed; one that closes its file does not.
func TestLeave(t *testing.T) {
	s, err := storetest.Open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, leaves := range []bool{true, false} {
		a, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		if leaves {
			a.Leave()
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		gone, killed := Gone(s)(a.Name), Killed(s)
		if (len(killed) == 1) != leaves || !gone {
			t.Errorf("leaves %v: killed %v, gone %v", leaves, killed, gone)
		}
		for _, p := range killed {
			_ = p.Close()
		}
	}
	(*Process)(nil).Leave()
}
