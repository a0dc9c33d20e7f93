package app

import (
	"errors"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/session"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/storage/programs"
)

// TestProgramOfADelegation: a suspended program goes on only under the delegation of its run, and a revocation removes it.
func TestProgramOfADelegation(t *testing.T) {
	store, err := OpenStorage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	h := &App{Storage: store, Approvals: &approval.Service{Store: store.Store}, Config: &contract.Config{},
		Sessions: session.NewManager(session.Defaults(), time.Now)}
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
	there, err := s.store().Save(programs.Program{Capability: "run_python", Session: string(n.ID), Principal: "os:1",
		Delegation: "dg_b", Place: "sd_other", At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	h.Config.Redaction.Tokens = true
	if _, _, err := s.Take(run, there); err == nil {
		t.Error("a program with tokens of another replica goes on")
	}
	h.Config.Redaction.Tokens = false
	if _, _, err := s.Take(run, there); err != nil {
		t.Error("control: without tokens:", err)
	}
	if err := s.End(there, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(run, call.Suspension{Image: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if removed, err := h.RevokePrograms([]string{"dg_x"}); removed != 0 || err != nil {
		t.Errorf("control: %d %v", removed, err)
	}
	if removed, err := h.RevokePrograms([]string{"dg_b"}); removed != 2 || err != nil {
		t.Errorf("%d removed: %v", removed, err)
	}
}
