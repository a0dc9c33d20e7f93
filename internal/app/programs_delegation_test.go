package app

import (
	"errors"
	"testing"
	"time"

	"waldo/internal/core/session"
	"waldo/internal/model/call"
	"waldo/internal/storage/programs"
)

// TestProgramOfADelegation: a suspended program goes on only under the delegation of its run, and a revocation removes it.
func TestProgramOfADelegation(t *testing.T) {
	h := &App{State: t.TempDir(), Sessions: session.NewManager(session.Defaults(), time.Now)}
	n, err := h.Sessions.Open("os:1", "w_1")
	if err != nil {
		t.Fatal(err)
	}
	s := suspendedPrograms{h}
	run := call.Call{Capability: "run_python", Session: n.ID, Principal: n.Principal, Chain: []string{"dg_a", "dg_b"}}
	name, err := s.Save(run, call.Suspension{Image: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range [][]string{nil, {"dg_a"}, {"dg_a", "dg_b", "dg_c"}} {
		other := run
		other.Chain = chain
		if _, _, err := s.Take(other, name); !errors.Is(err, programs.ErrAbsent) {
			t.Errorf("under %q: %v", chain, err)
		}
	}
	if _, _, err := s.Take(run, name); err != nil {
		t.Error("control:", err)
	}
	if _, err := s.Save(run, call.Suspension{Image: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if removed, err := RevokePrograms(h.State, []string{"dg_x"}); removed != 0 || err != nil {
		t.Errorf("control: %d %v", removed, err)
	}
	if removed, err := RevokePrograms(h.State, []string{"dg_b"}); removed != 2 || err != nil {
		t.Errorf("%d removed: %v", removed, err)
	}
}
