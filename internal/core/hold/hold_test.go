package hold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
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
		l, code := hold.New(run, nil), ""
		for _, d := range row.adds {
			n, against := l.Add(t.Context(), d, nil)
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
	l := hold.New(decided(t, "run_python", "x", "lead", policy.Allow), nil)
	one := decided(t, "s.add", "x", "", policy.Ask)
	for i := range hold.MaxCalls {
		if n, against := l.Add(t.Context(), one, nil); n != i+1 || against != nil {
			t.Fatal(n, against)
		}
	}
	if _, against := l.Add(t.Context(), one, nil); against == nil || against.Code != "hold.too_many" {
		t.Error(against)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	other := hold.New(one, nil)
	if _, against := other.Add(gone, one, nil); against == nil || against.Code != "hold.ended" {
		t.Error(against)
	}
	s := l.Close().Rest
	if len(s.Calls) != hold.MaxCalls || s.Role != "lead" || s.Danger != 2 || *s.Mode != contract.Write {
		t.Errorf("%d calls, role %q", len(s.Calls), s.Role)
	}
	if _, against := l.Add(t.Context(), one, nil); against == nil || against.Code != "hold.ended" {
		t.Error(against)
	}
}

// TestOf: a list collects all but reads and denials, and programs also where their contract calls them reads.
func TestOf(t *testing.T) {
	ctx := hold.With(t.Context(), hold.New(decided(t, "run_python", "x", "", policy.Allow), nil))
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
	l := hold.New(run, nil)
	s := l.Close().Rest
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

// maker answers each statement with a status, and makes all of its calls but the last of one that fails.
type maker struct {
	status facts.Status
	asked  []hold.Statement
	quoted string
}

func (m *maker) Make(ctx context.Context, s hold.Statement, _ call.Session, approvalID string) (hold.Made, error) {
	m.asked, m.quoted = append(m.asked, s), approvalID
	each := map[int]call.Result{}
	for i := range s.Calls {
		if m.status == facts.OK || m.status == facts.Failed && i < len(s.Calls)-1 {
			each[i+1] = call.Result{Status: facts.OK, CallID: fmt.Sprint("c", s.From+i+1)}
		}
	}
	if hold.Whose(ctx) != nil {
		return hold.Made{}, errors.New("the calls would be collected again")
	}
	return hold.Made{Result: call.Result{Status: m.status}, Calls: len(s.Calls), Each: each}, nil
}

func (m *maker) Asked(_ context.Context, _ call.Session, approvalID string) (hold.Statement, bool, error) {
	one := hold.Held{Capability: "s.add"}
	return hold.Statement{From: 2, Needs: 4, Calls: []hold.Held{one, one}}, approvalID == "a_mine", nil
}

// TestResult: a result asks about all calls so far, once; the next ones are a list of their own. After a call that was
// not made, and while a question waits, no more are collected.
func TestResult(t *testing.T) {
	run, one := decided(t, "run_python", "x", "", policy.Allow), decided(t, "s.add", "x", "", policy.Ask)
	for _, row := range []struct {
		status   facts.Status
		want     string // of the results of calls 1, 2 and 3, of which the third is collected afterwards
		asked    int
		leftOver int
	}{
		{facts.OK, "c1 c2 c3", 2, 0},
		{facts.Failed, "c1 hold.stopped hold.stopped", 1, 0},
		{facts.Denied, "denied hold.stopped hold.stopped", 1, 0},
		{facts.Waiting, "waiting waiting hold.stopped", 1, 2},
	} {
		m := &maker{status: row.status}
		l := hold.New(run, m)
		ctx, got := hold.With(t.Context(), l), []string{}
		for range 2 {
			l.Add(ctx, one, nil)
		}
		for n := 1; n <= 3; n++ {
			if n == 3 {
				if _, against := l.Add(ctx, one, nil); (against == nil) != (row.status == facts.OK) {
					t.Errorf("%s: a call afterwards: %v", row.status, against)
				} else if against != nil {
					got = append(got, against.Code)
					break
				}
			}
			r, err := l.Result(ctx, "n_1", n, "")
			switch {
			case err != nil:
				t.Fatal(err)
			case len(r.Why) > 0:
				got = append(got, r.Why[0].Code)
			case r.CallID != "":
				got = append(got, r.CallID)
			default:
				got = append(got, string(r.Status))
			}
		}
		left := l.Close()
		text := strings.Join(got, " ")
		if text != row.want || len(m.asked) != row.asked || len(left.Rest.Calls) != row.leftOver {
			t.Errorf("%s: %s, %d asked, %d left", row.status, text, len(m.asked), len(left.Rest.Calls))
		}
		if row.status == facts.OK && (m.asked[1].From != 2 || m.asked[1].Needs != 3 || m.asked[0].Needs != 1) {
			t.Errorf("%+v", m.asked)
		}
	}
}

// TestResultOfASuspendedProgram: it quotes its approval, whose statement is asked about as it stands.
func TestResultOfASuspendedProgram(t *testing.T) {
	for _, row := range []struct{ approval, want string }{
		{"a_mine", "c3"}, {"a_other", "hold.result"}, {"", "hold.result"},
	} {
		m := &maker{status: facts.OK}
		r, err := hold.New(decided(t, "run_javascript", "x", "", policy.Allow), m).Result(t.Context(), "n_1", 3, row.approval)
		got := r.CallID
		if len(r.Why) > 0 {
			got = r.Why[0].Code
		}
		if err != nil || got != row.want || row.want == "c3" && (m.quoted != "a_mine" || m.asked[0].Needs != 4) {
			t.Errorf("%s: %s, %v %+v", row.approval, got, err, m)
		}
	}
}

// TestPreviews: previews beyond the room of a list are left out, and their calls stay.
func TestPreviews(t *testing.T) {
	l, one := hold.New(decided(t, "run_python", "x", "", policy.Allow), nil), decided(t, "s.add", "x", "", policy.Ask)
	for _, n := range []int{hold.MaxShown, 1, 0} {
		l.Add(t.Context(), one, []string{strings.Repeat("x", n)})
	}
	all := l.Close().Rest.Calls
	if hold.Unshown(all[0].Preview) || !hold.Unshown(all[1].Preview) || hold.Unshown(all[2].Preview) {
		t.Errorf("%q", all[1].Preview)
	}
}
