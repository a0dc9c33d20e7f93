package confirm

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/testing/storetest"
)

var ctx = context.Background()

// fixture is a desk over a store of its own, with a clock that the test moves.
type fixture struct {
	*Confirmer
	approval.Fixed
	service *approval.Service
	at      time.Time
	preview []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := storetest.Open(t, t.TempDir()+"/state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h := &fixture{at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), preview: []string{"rm /work/a"}}
	now := func() time.Time { return h.at }
	h.service = &approval.Service{Store: s, Now: now, Witness: emptyLog{}, Calls: h}
	h.Confirmer = &Confirmer{Store: s, Questions: h.service, Now: now}
	return h
}

// Preview satisfies approval.Calls.
func (h *fixture) Preview(context.Context, policy.Decision) []string { return h.preview }

// emptyLog is a log in which no human has answered yet.
type emptyLog struct{}

func (emptyLog) Look(_ context.Context, fn func(*approval.Ledger)) error {
	fn(&approval.Ledger{})
	return nil
}

func decide(t *testing.T, args string) policy.Decision {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{
		ID: "d_1", Effect: policy.Allow, Policy: "sha256:p", Danger: 3,
		Call: call.Call{Capability: "files.delete", Args: a, Session: "n_one", Principal: "os:1000", Channel: "mcp",
			ToolDigest: "sha256:t"},
		Contract: contract.Contract{Pattern: "files.*", Confirm: true},
	}
}

// token makes the first call, which is previewed.
func (h *fixture) token(t *testing.T, d policy.Decision) string {
	t.Helper()
	p, why, err := h.Confirm(ctx, d)
	if p == nil || why != nil || err != nil {
		t.Fatalf("no preview: %v %v", why, err)
	}
	return p.Token
}

// got names how a call fares: acts, preview, or the code of a refusal.
func (h *fixture) got(t *testing.T, d policy.Decision) string {
	t.Helper()
	p, why, err := h.Confirm(ctx, d)
	switch {
	case err != nil:
		t.Fatal(err)
	case why != nil:
		return why.Code
	case p != nil:
		return "preview"
	}
	return "acts"
}

// A token is good for the call that was previewed, once, and for no other in any of its parts.
func TestATokenIsForOneCall(t *testing.T) {
	other := func(args string) call.Args {
		a, err := call.ParseArgs([]byte(args))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, row := range []struct {
		why    string
		change func(h *fixture, d *policy.Decision)
		want   string
	}{
		{"control: the same call", func(*fixture, *policy.Decision) {}, "acts"},
		{"control: another decision on it", func(_ *fixture, d *policy.Decision) { d.ID = "d_2" }, "acts"},
		{"other arguments", func(_ *fixture, d *policy.Decision) { d.Call.Args = other(`{"path":"/work/b"}`) },
			"confirm.mismatch"},
		{"one more argument", func(_ *fixture, d *policy.Decision) {
			d.Call.Args = other(`{"path":"/work/a","force":true}`)
		}, "confirm.mismatch"},
		{"another tool", func(_ *fixture, d *policy.Decision) { d.Call.Capability = "files.wipe" }, "confirm.mismatch"},
		{"another definition of the tool", func(_ *fixture, d *policy.Decision) { d.Call.ToolDigest = "sha256:u" },
			"confirm.mismatch"},
		{"another principal", func(_ *fixture, d *policy.Decision) { d.Call.Principal = "token:eve" }, "confirm.mismatch"},
		{"another tenant", func(_ *fixture, d *policy.Decision) { d.Call.Principal = d.Call.Principal.In("beta") },
			"confirm.mismatch"},
		{"another session", func(_ *fixture, d *policy.Decision) { d.Call.Session = "n_two" }, "confirm.unknown"},
		{"another configuration", func(_ *fixture, d *policy.Decision) { d.Policy = "sha256:q" }, "confirm.mismatch"},
		{"another contract", func(_ *fixture, d *policy.Decision) { d.Contract.Timeout = time.Hour }, "confirm.mismatch"},
		{"more danger", func(_ *fixture, d *policy.Decision) { d.Danger = 2 }, "confirm.mismatch"},
		{"what it would do has changed", func(h *fixture, _ *policy.Decision) { h.preview = []string{"rm -r /"} },
			"confirm.mismatch"},
		{"just in time", func(h *fixture, _ *policy.Decision) { h.at = h.at.Add(Life - time.Millisecond) }, "acts"},
		{"too late", func(h *fixture, _ *policy.Decision) { h.at = h.at.Add(Life) }, "confirm.expired"},
		{"an invented token", func(_ *fixture, d *policy.Decision) { d.Call.Confirm = "yes" }, "confirm.unknown"},
		{"no token", func(_ *fixture, d *policy.Decision) { d.Call.Confirm = "" }, "preview"},
		{"a contract that asks for none", func(_ *fixture, d *policy.Decision) { d.Contract.Confirm = false }, "acts"},
	} {
		t.Run(row.why, func(t *testing.T) {
			h := newFixture(t)
			d := decide(t, `{"path":"/work/a"}`)
			first := d
			d.Call.Confirm = h.token(t, d)
			row.change(h, &d)
			if got := h.got(t, d); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
			if row.want != "acts" || !d.Contract.Confirm {
				return
			}
			first.Call.Confirm = d.Call.Confirm
			h.at = h.at.Add(-time.Hour) // no clock that goes back makes it good again
			if got := h.got(t, first); got != "confirm.used" {
				t.Errorf("a second time: %s", got)
			}
		})
	}
}

// 100 calls race for one token, and one acts.
func TestOneOfManyActs(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	d.Call.Confirm = h.token(t, d)
	var acts atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if h.got(t, d) == "acts" {
				acts.Add(1)
			}
		})
	}
	all.Wait()
	if acts.Load() != 1 {
		t.Errorf("%d calls acted", acts.Load())
	}
}

// A token never stands for a human: the call asks one all the same, and while that question stands, it needs no further
// token. After its use it does.
func TestATokenIsNoApproval(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	d.Effect = policy.Ask
	d.Call.Confirm = h.token(t, d)
	if got := h.got(t, d); got != "acts" {
		t.Fatalf("with the token: %s", got)
	}
	a, approvalID, err := h.service.Ask(ctx, d)
	if a != nil || approvalID == "" || err != nil {
		t.Fatalf("the human was not asked: %+v %q %v", a, approvalID, err)
	}
	for _, quoted := range []string{d.Call.Confirm, ""} {
		d.Call.Confirm = quoted
		if got := h.got(t, d); got != "acts" {
			t.Errorf("while a human is asked, quoting %q: %s", quoted, got)
		}
	}
	d.Effect = policy.Allow // the open question is no token for a call without a question
	if got := h.got(t, d); got != "preview" {
		t.Errorf("without a human: %s", got)
	}
	d.Effect = policy.Ask
	h.at = h.at.Add(2 * time.Hour)
	if got := h.got(t, d); got != "preview" {
		t.Errorf("when the question is over: %s", got)
	}
	d.Effect = policy.Deny
	if p, why, err := h.Confirm(ctx, d); p != nil || why != nil || err != nil {
		t.Errorf("a denial is previewed: %v %v %v", p, why, err)
	}
}

// A session has so many previews at a time, and old ones go.
func TestPreviewsAreBounded(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	for range MaxOpen {
		h.token(t, d)
	}
	if got := h.got(t, d); got != "confirm.too_many" {
		t.Errorf("one more: %s", got)
	}
	other := d
	other.Call.Session = "n_two"
	h.token(t, other)
	h.at = h.at.Add(2*Life + time.Second)
	h.token(t, d)
	if left, err := h.Store.List(ctx, bucket); err != nil || len(left) != 1 {
		t.Errorf("%d rows stay: %v", len(left), err)
	}
}
