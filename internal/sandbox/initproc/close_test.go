//go:build linux && (amd64 || arm64)

package initproc

import (
	"os"
	"testing"
	"time"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/procstat"
)

// TestNothingLeft: whenever a sandbox that is being made is given up, nothing of it is left, a dead PID 1
// neither.
func TestNothingLeft(t *testing.T) {
	machine, err := Machine()
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	before := len(procstat.Children(os.Getpid()))
	for why, giveUp := range map[string]func(s *Stage) error{
		"control: it was handed over": (*Stage).HandOver,
		"at once":                     func(*Stage) error { return nil },
		"PID 1 is there":              func(*Stage) error { time.Sleep(50 * time.Millisecond); return nil },
		"it takes too long": func(s *Stage) error {
			time.Sleep(50 * time.Millisecond)
			if err := s.handOver(time.Now()); err == nil {
				t.Error("it was handed over in no time")
			}
			return nil
		},
	} {
		s, _, err := SpawnInit(machine, os.Geteuid(), os.Getegid(), &cgroup.Group{CloneFD: -1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := giveUp(s); err != nil {
			t.Errorf("%s: %v", why, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", why, err)
		}
		if left := len(procstat.Children(os.Getpid())) - before; left != 0 {
			t.Errorf("%s: %d processes are left", why, left)
			before += left
		}
		if took := time.Since(began); took > Patience/2 {
			t.Errorf("%s: it took %v", why, took)
		}
	}
}
