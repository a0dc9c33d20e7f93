package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/broker"
	"waldo/internal/core/delegation"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// held is a desk of delegations that answers as it is told.
type held struct {
	*fixture
	outside, late *call.Reason
	bound         int
}

func (h *held) Under(context.Context, call.Call) (*delegation.Chain, *call.Reason) {
	return &delegation.Chain{Links: []delegation.Link{{ID: "dg_a"}, {ID: "dg_b"}}}, h.outside
}

func (h *held) Decide(c call.Call, _ *delegation.Chain) policy.Decision { return h.fixture.Decide(c) }

func (h *held) Confirm(context.Context, policy.Decision, *delegation.Chain) *call.Reason {
	return h.late
}

func (h *held) Bind(ctx context.Context, _ *delegation.Chain) (context.Context, func()) {
	h.bound++
	return ctx, func() {}
}

// TestDelegated: a call whose delegation does not hold is recorded and not executed, before or after its decision.
func TestDelegated(t *testing.T) {
	why := func(code string) *call.Reason { return &call.Reason{Code: code} }
	for _, row := range []struct {
		name, want    string
		outside, late *call.Reason
	}{
		{"control", "", nil, nil},
		{"a token that does not hold", "delegation.token", why("delegation.token"), nil},
		{"ended since it was decided", "delegation.revoked", nil, why("delegation.revoked")},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &fixture{effect: policy.Allow}
			h := &held{fixture: f, outside: row.outside, late: row.late}
			b := newBroker(f)
			b.Delegated = h
			r, err := b.Call(t.Context(), call.Call{ID: "c_1", Delegation: "token"})
			if err != nil {
				t.Fatal(err)
			}
			if executed := slices.Contains(f.steps, "execute"); executed != (row.want == "") || h.bound != 1 ||
				!slices.Contains(f.steps, "record decision") {
				t.Errorf("%v, bound %d times", f.steps, h.bound)
			}
			if row.want != "" && (r.Status != facts.Denied || len(r.Why) == 0 || r.Why[0].Code != row.want) {
				t.Errorf("%s %v, want %s", r.Status, r.Why, row.want)
			}
		})
	}
}

// TestNoDesk: where delegations cannot be looked up, a call that names one is denied.
func TestNoDesk(t *testing.T) {
	for _, c := range []call.Call{{ID: "c_1", Delegation: "token"}, {ID: "c_1", Chain: []string{"dg_a"}}} {
		f := &fixture{effect: policy.Allow}
		r, err := newBroker(f).Call(t.Context(), c)
		if err != nil || len(r.Why) == 0 || r.Why[0].Code != "delegation.unavailable" || slices.Contains(f.steps, "execute") {
			t.Errorf("%v %v %v", r.Why, f.steps, err)
		}
	}
}

var _ broker.Delegations = (*held)(nil)

// refusing is a witness with a reason against each call; nil: it cosigns.
type refusing struct{ why *call.Reason }

func (r refusing) Cosigned(context.Context) *call.Reason { return r.why }
func (refusing) Back(context.Context) *call.Reason       { return nil }

// back is a witness that knows a later log.
type back struct{ refusing }

func (back) Back(context.Context) *call.Reason { return &call.Reason{Code: "bucket.back"} }

// TestBack: where the log went back in time, a call of danger 3 is denied before a human is asked. Others go on.
func TestBack(t *testing.T) {
	for _, row := range []struct {
		danger int
		effect policy.Effect
		w      broker.Witness
		want   string
	}{
		{3, policy.Allow, refusing{}, ""}, // control
		{2, policy.Allow, back{}, ""},
		{3, policy.Allow, back{}, "bucket.back"},
		{3, policy.Ask, back{}, "bucket.back"},
	} {
		f := &fixture{effect: row.effect, danger: row.danger}
		b := newBroker(f)
		b.Witness = row.w
		r, err := b.Call(t.Context(), call.Call{ID: "c_1"})
		acted := slices.Contains(f.steps, "execute")
		if err != nil || acted != (row.want == "") || row.want != "" && (len(r.Why) == 0 || r.Why[0].Code != row.want) ||
			slices.Contains(f.steps, "ask") || !slices.Contains(f.steps, "record decision") {
			t.Errorf("%+v: %v %v %v", row, r.Why, f.steps, err)
		}
	}
}

// TestWitness: a call whose contract requires a witness acts only when the log was cosigned; others do not ask.
func TestWitness(t *testing.T) {
	refused := &call.Reason{Code: "witness.refused"}
	for _, row := range []struct {
		name     string
		requires bool
		w        broker.Witness
		want     string
	}{
		{"control: not required", false, refusing{refused}, ""},
		{"control: cosigned", true, refusing{}, ""},
		{"refused", true, refusing{refused}, "witness.refused"},
		{"no witness here", true, nil, "witness.unavailable"},
	} {
		f := &fixture{effect: policy.Allow, requires: row.requires}
		b := newBroker(f)
		b.Witness = row.w
		r, err := b.Call(t.Context(), call.Call{ID: "c_1"})
		acted := slices.Contains(f.steps, "execute")
		if err != nil || acted != (row.want == "") || row.want != "" && (len(r.Why) == 0 || r.Why[0].Code != row.want) {
			t.Errorf("%s: %v %v %v", row.name, r.Why, f.steps, err)
		}
	}
}

// TestWitnessAfterYes: a witness that fails after a yes was used stops the call. The reason says so of the yes.
func TestWitnessAfterYes(t *testing.T) {
	away := refusing{&call.Reason{Code: "witness.missing", Text: "away"}}
	for _, row := range []struct {
		yes  bool
		w    refusing
		want string
	}{
		{true, refusing{}, "[]"}, // control
		{true, away, "away; the approval is used up, so ask again"},
		{false, away, "approval.refused"},
	} {
		f := &fixture{effect: policy.Ask, requires: true, answer: &row.yes}
		b := newBroker(f)
		b.Witness = row.w
		r, err := b.Call(t.Context(), call.Call{ID: "c_1"})
		acted := slices.Contains(f.steps, "execute")
		if err != nil || acted != (row.w.why == nil) || !strings.Contains(fmt.Sprint(r.Why), row.want) {
			t.Errorf("%+v: %v %v %v", row, r.Why, f.steps, err)
		}
	}
}

// stopping is a witness that cosigns, while something else ends the session.
type stopping struct{ stop func() }

func (s stopping) Cosigned(context.Context) *call.Reason { s.stop(); return nil }
func (stopping) Back(context.Context) *call.Reason       { return nil }

// TestStoppedMeanwhile: a session that is stopped, or a delegation that is revoked, while a witness is asked does not act.
func TestStoppedMeanwhile(t *testing.T) {
	for _, row := range []struct {
		name, want string
		do         func(f *fixture, h *held)
	}{
		{"control", "", func(*fixture, *held) {}},
		{"stopped", "session.stopped", func(f *fixture, _ *held) { f.stop() }},
		{"revoked", "delegation.revoked", func(_ *fixture, h *held) { h.late = &call.Reason{Code: "delegation.revoked"} }},
	} {
		f := &fixture{effect: policy.Allow, requires: true}
		h := &held{fixture: f}
		b := newBroker(f)
		b.Delegated, b.Witness = h, stopping{func() { row.do(f, h) }}
		r, err := b.Call(t.Context(), call.Call{ID: "c_1", Delegation: "token"})
		acted := slices.Contains(f.steps, "execute")
		if err != nil || acted != (row.want == "") || row.want != "" && (len(r.Why) == 0 || r.Why[0].Code != row.want) {
			t.Errorf("%s: %v %v %v", row.name, r.Why, f.steps, err)
		}
	}
}

func newBroker(h *fixture) *broker.Broker {
	return &broker.Broker{Policy: h, Record: h, Approvals: h, Budget: h, Redact: h, Effects: remembered{h: h},
		Executors: map[contract.Transport]broker.Executor{contract.Direct: h}}
}
