package hold_test

import (
	"context"
	"strings"
	"testing"

	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

func decided(t *testing.T, name call.Capability, text, role string, e policy.Effect) policy.Decision {
	t.Helper()
	args, err := call.ArgsOf(map[string]any{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{Effect: e, Danger: 2, Call: call.Call{Capability: name, Args: args},
		Contract: contract.Contract{Mode: contract.Write, Approval: contract.Approval{By: role}}}
}

// TestAdd: what cannot be covered by one yes is refused with its reason, and never left out in silence.
func TestAdd(t *testing.T) {
	run := decided(t, "run_python", "x", "", policy.Allow)
	confirm := decided(t, "s.add", "x", "", policy.Allow)
	confirm.Contract.Confirm = true
	for _, row := range []struct {
		why  string
		adds []policy.Decision
		code string // of the last one; empty: it is held
	}{
		{"a write", []policy.Decision{decided(t, "s.add", "x", "", policy.Allow)}, ""},
		{"one role, and a call that asks any approver", []policy.Decision{decided(t, "s.add", "x", "", policy.Ask),
			decided(t, "s.add", "x", "lead", policy.Ask)}, ""},
		{"the role of a call that asks nobody", []policy.Decision{decided(t, "s.add", "x", "lead", policy.Ask),
			decided(t, "s.add", "x", "ops", policy.Allow)}, ""},
		{"two roles", []policy.Decision{decided(t, "s.add", "x", "lead", policy.Ask),
			decided(t, "s.add", "x", "ops", policy.Ask)}, "hold.role"},
		{"a call that is previewed first", []policy.Decision{confirm}, "hold.confirm"},
		{"a program in a program",
			[]policy.Decision{decided(t, "run_javascript", "x", "", policy.Allow)}, "hold.nested"},
		{"the last bytes",
			[]policy.Decision{decided(t, "s.add", strings.Repeat("x", hold.MaxBytes-11), "", policy.Allow)}, ""},
		{"a byte too many",
			[]policy.Decision{decided(t, "s.add", strings.Repeat("x", hold.MaxBytes-10), "", policy.Allow)}, "hold.too_large"},
	} {
		l, code := hold.New(run), ""
		for _, d := range row.adds {
			n, against := l.Add(t.Context(), d)
			if code = ""; against != nil {
				code = against.Code
			}
			if (n == 0) != (code != "") {
				t.Errorf("%s: number %d, %q", row.why, n, code)
			}
		}
		if code != row.code {
			t.Errorf("%s: %q, want %q", row.why, code, row.code)
		}
	}
}

// TestBounds: 200 calls are held in their order, and one more is refused; a closed list and an ended program take none.
func TestBounds(t *testing.T) {
	l := hold.New(decided(t, "run_python", "x", "lead", policy.Allow))
	one := decided(t, "s.add", "x", "", policy.Ask)
	for i := range hold.MaxCalls {
		if n, against := l.Add(t.Context(), one); n != i+1 || against != nil {
			t.Fatal(n, against)
		}
	}
	if _, against := l.Add(t.Context(), one); against == nil || against.Code != "hold.too_many" {
		t.Error(against)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	other := hold.New(one)
	if _, against := other.Add(gone, one); against == nil || against.Code != "hold.ended" {
		t.Error(against)
	}
	if s := l.Close(); len(s.Calls) != hold.MaxCalls || s.Role != "lead" || s.Danger != 2 || *s.Mode != contract.Write {
		t.Errorf("%d calls, role %q", len(s.Calls), s.Role)
	}
	if _, against := l.Add(t.Context(), one); against == nil || against.Code != "hold.ended" {
		t.Error(against)
	}
}

// TestOf: a list collects all but reads and denials, and programs also where their contract calls them reads.
func TestOf(t *testing.T) {
	ctx := hold.With(t.Context(), hold.New(decided(t, "run_python", "x", "", policy.Allow)))
	read, nested := decided(t, "s.get", "x", "", policy.Allow), decided(t, "run_python", "x", "", policy.Allow)
	writes := read
	read.Contract.Mode, writes.Contract.Mode, nested.Contract.Mode = contract.Read, contract.Read, contract.Read
	writes.Writes = true // its server says so
	for _, row := range []struct {
		why  string
		ctx  context.Context
		d    policy.Decision
		held bool
	}{
		{"a write", ctx, decided(t, "s.add", "x", "", policy.Allow), true},
		{"a write without a list", t.Context(), decided(t, "s.add", "x", "", policy.Allow), false},
		{"a denied write", ctx, decided(t, "s.add", "x", "", policy.Deny), false},
		{"a read", ctx, read, false},
		{"a read that its server calls a write", ctx, writes, true},
		{"a program that its contract calls a read", ctx, nested, true},
	} {
		if got := hold.Of(row.ctx, row.d) != nil; got != row.held {
			t.Errorf("%s: %v", row.why, got)
		}
	}
}

// TestStatementOf: a statement is of its own run alone: another program's, argument's or delegation's is none.
func TestStatementOf(t *testing.T) {
	run := decided(t, "run_python", "x", "", policy.Allow)
	l := hold.New(run)
	s := l.Close()
	child := run.Call
	child.Chain = []string{"g_1"}
	for why, row := range map[string]struct {
		of   call.Call
		want bool
	}{
		"control":         {run.Call, true},
		"another program": {decided(t, "run_shell", "x", "", policy.Allow).Call, false},
		"other arguments": {decided(t, "run_python", "y", "", policy.Allow).Call, false},
		"a delegation":    {child, false},
	} {
		if s.Of(row.of) != row.want {
			t.Errorf("%s: %v", why, !row.want)
		}
	}
}
