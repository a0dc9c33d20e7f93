package audit

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/core/audit/headfile"
	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
)

// Approval records are past every head before Append returns. So a kill followed by a cut tail does not look like a
// crash. For other records the heads can lag.
func TestHeadsPassApprovalsAtOnce(t *testing.T) {
	first, second := &memory{}, &headfile.File{Path: filepath.Join(t.TempDir(), "head")}
	l := openLog(t, filepath.Join(t.TempDir(), "log"), Options{Heads: first, Second: second, HeadDelay: time.Hour})
	passed := func(seq uint64) bool {
		a, err := first.Head(ctx, Name)
		b, berr := second.Head(ctx, Name)
		if err != nil || berr != nil {
			t.Fatal(err, berr)
		}
		return a.Seq >= seq && b.Seq >= seq
	}
	for _, row := range []struct {
		kind   string
		passed bool
	}{
		{KindDecision, false}, {KindAnswer, true}, {KindOutcome, false}, {KindApprover, true},
		{"note", false}, {KindPruned, true},
	} {
		r, err := l.Append(ctx, row.kind, []byte(`{}`), true)
		if err != nil {
			t.Fatal(err)
		}
		if passed(r.Seq) != row.passed {
			t.Errorf("%s: the heads have passed it: %v", row.kind, !row.passed)
		}
	}
	for _, witness := range []bool{false, true} { // a call that witnesses must see before it acts
		d := policy.Decision{Effect: policy.Allow, Contract: contract.Contract{Mode: contract.HighRisk, Witness: witness}}
		if err := (&Recorder{Log: l}).Decision(ctx, d); err != nil {
			t.Fatal(err)
		}
		if passed(l.at.seq) != witness {
			t.Errorf("witness %t: the heads have passed its decision: %t", witness, !witness)
		}
	}
	broken := errors.New("no such disk")
	first.mu.Lock()
	first.err = broken
	first.mu.Unlock()
	if _, err := l.Append(ctx, KindOutcome, []byte(`{}`), true); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, err := l.Append(ctx, KindAnswer, []byte(`{}`), true); !errors.Is(err, broken) {
		t.Errorf("an answer that no head passes is taken: %v", err)
	}
	first.mu.Lock()
	first.err = nil
	first.mu.Unlock()
}
