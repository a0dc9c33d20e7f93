package broker_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/broker"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// A fixture has every package beside the pipeline, each a few lines, and records the order in which they are entered.
type fixture struct {
	effect        policy.Effect
	requires      bool // a witness
	danger        int
	answer        *bool // nil: the question stays open
	against       *call.Reason
	failRecord    string // decision, answer or outcome
	failWith      error  // nil: another
	failExecute   error
	failRestore   error
	steps         []string
	result        call.Result
	redeemedTwice bool
	written       []string // the files that an execution says it wrote
	stop          func()   // ends the session
	paced, spent  int
	later         int    // outcomes that are recorded later
	stopAt        string // ask or execute: the step at which it is ended
}

func (h *fixture) Decide(c call.Call) policy.Decision {
	h.steps = append(h.steps, "decide")
	return policy.Decision{Effect: h.effect, Danger: h.danger, Call: c, Contract: contract.Contract{Transport: contract.Direct, Witness: h.requires}}
}
func (h *fixture) Take(policy.Decision) (func(), *call.Reason) {
	return func() { h.steps = append(h.steps, "done") }, h.against
}
func (h *fixture) Pace(context.Context, call.Call) { h.paced++ }
func (h *fixture) Spend(call.Call, call.Result)    { h.spent++ }

func (h *fixture) Bind(ctx context.Context, _ call.Session) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.stop = func() { cancel(&call.Stop{Why: call.Reason{Code: "session.stopped"}}) }
	return ctx, func() { cancel(nil) }
}
func (h *fixture) note(what string) error {
	h.steps = append(h.steps, "record "+what)
	if h.failRecord == what {
		return cmp.Or(h.failWith, errors.New("disk full"))
	}
	return nil
}
func (h *fixture) Decision(context.Context, policy.Decision) error { return h.note("decision") }
func (h *fixture) Answer(context.Context, policy.Decision, approval.Answer) error {
	return h.note("answer")
}
func (h *fixture) Outcome(ctx context.Context, _ policy.Decision, r call.Result) (at call.Logged, err error) {
	h.result = r
	if err := ctx.Err(); err != nil {
		return at, err
	}
	return at, h.note("outcome")
}
func (h *fixture) Ask(_ context.Context, d policy.Decision) (*approval.Answer, string, error) {
	h.steps = append(h.steps, "ask")
	if h.stopAt == "ask" {
		h.stop()
	}
	if h.answer == nil {
		return nil, "a_1", nil
	}
	return &approval.Answer{
		DecisionID: d.ID, Capability: d.Call.Capability, ArgsDigest: d.Call.Args.Digest(), Yes: *h.answer,
	}, "", nil
}
func (h *fixture) Restore(d policy.Decision) (call.Args, error) { return d.Call.Args, h.failRestore }
func (h *fixture) Result(d policy.Decision, o call.Outcome) call.Result {
	return call.Result{CallID: d.Call.ID, DecisionID: d.ID, Status: o.Facts.Status, Facts: o.Facts}
}
func (h *fixture) Execute(_ context.Context, g *grant.Grant) (call.Outcome, error) {
	h.steps = append(h.steps, "execute")
	if _, err := g.Redeem(); err != nil {
		return call.Outcome{}, err
	}
	_, err := g.Redeem()
	h.redeemedTwice = err == nil
	f := facts.New()
	f.Status, f.Files.Written = facts.OK, h.written
	if h.stopAt == "execute" {
		h.stop()
		f.Status = facts.Cancelled
	}
	return call.Outcome{Facts: f}, h.failExecute
}

// remembered are the calls that are not tracked and whose outcome is unknown.
type remembered struct {
	broker.Effects
	h *fixture
}

func (r remembered) Lost(context.Context, policy.Decision, call.Result, bool) (string, error) {
	return "", r.h.note("unknown")
}

// Later is for outcomes that could not be recorded.
func (m remembered) Later(context.Context, policy.Decision, call.Result, bool, bool) { m.h.later++ }

func (h *fixture) call(t *testing.T) (call.Result, error) {
	t.Helper()
	b := broker.Broker{Policy: h, Record: h, Approvals: h, Budget: h, Redact: h, Effects: remembered{h: h},
		Executors: map[contract.Transport]broker.Executor{contract.Direct: h}}
	return b.Call(t.Context(), call.Call{ID: "c_1", Capability: "x"})
}

func TestCall(t *testing.T) {
	yes, no := true, false
	for _, row := range []struct {
		why    string
		h      fixture
		status facts.Status
		fails  bool
		steps  []string
	}{
		{"allowed: decided, recorded, executed, recorded", fixture{effect: policy.Allow}, facts.OK, false,
			[]string{"decide", "record decision", "execute", "record outcome", "done"}},
		{"denied: nothing is executed", fixture{effect: policy.Deny}, facts.Denied, false,
			[]string{"decide", "record decision", "record outcome", "done"}},
		{"asked and answered yes: the answer is recorded before it is used", fixture{effect: policy.Ask, answer: &yes},
			facts.OK, false, []string{"decide", "record decision", "ask", "record answer", "execute", "record outcome", "done"}},
		{"asked and answered no", fixture{effect: policy.Ask, answer: &no}, facts.Denied, false,
			[]string{"decide", "record decision", "ask", "record answer", "record outcome", "done"}},
		{"asked and not answered", fixture{effect: policy.Ask}, facts.Waiting, false,
			[]string{"decide", "record decision", "ask", "record outcome", "done"}},
		{"a budget that is used up denies what the policy allows",
			fixture{effect: policy.Allow, against: &call.Reason{Code: "rate.exceeded"}}, facts.Denied, false,
			[]string{"decide", "record decision", "record outcome", "done"}},
		{"what cannot be recorded is not done", fixture{effect: policy.Allow, failRecord: "decision"}, facts.Failed, true,
			[]string{"decide", "record decision", "done"}},
		{"an answer that cannot be recorded is not used", fixture{effect: policy.Ask, answer: &yes, failRecord: "answer"},
			facts.Failed, true, []string{"decide", "record decision", "ask", "record answer", "record outcome", "done"}},
		{"an outcome that cannot be recorded is an error", fixture{effect: policy.Allow, failRecord: "outcome"}, "", true,
			[]string{"decide", "record decision", "execute", "record outcome", "done"}},
		{"tokens that cannot be restored stop the call", fixture{effect: policy.Allow, failRestore: errors.New("vault")},
			facts.Failed, true, []string{"decide", "record decision", "record outcome", "done"}},
		{"a session that is ended while a human is asked: the yes is of no use",
			fixture{effect: policy.Ask, answer: &yes, stopAt: "ask"}, facts.Denied, false,
			[]string{"decide", "record decision", "ask", "record answer", "record outcome", "done"}},
		{"a session that is ended while its call is carried out", fixture{effect: policy.Allow, stopAt: "execute"},
			facts.Cancelled, false, []string{"decide", "record decision", "execute", "record unknown", "record outcome", "done"}},
		{"a worker that fails is recorded", fixture{effect: policy.Allow, failExecute: errors.New("worker")}, facts.OK, true,
			[]string{"decide", "record decision", "execute", "record outcome", "done"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			r, err := row.h.call(t)
			if r.Status != row.status || (err != nil) != row.fails {
				t.Errorf("status %q, error %v", r.Status, err)
			}
			if row.h.failRecord == "decision" && r.Facts.SideEffect != facts.None {
				t.Errorf("a call that was not made has side effect %q", r.Facts.SideEffect)
			}
			if !slices.Equal(row.h.steps, row.steps) {
				t.Errorf("steps %q, wanted %q", row.h.steps, row.steps)
			}
			if row.h.redeemedTwice {
				t.Error("the grant was redeemed twice")
			}
			if said := slices.Contains(r.Why, call.Reason{Code: "session.stopped"}); said != (row.h.stopAt != "") {
				t.Errorf("reasons %v", r.Why)
			}
		})
	}
}

func TestNoExecutorForATransport(t *testing.T) {
	h := &fixture{effect: policy.Allow}
	b := broker.Broker{Policy: h, Record: h, Approvals: h, Budget: h, Redact: h, Effects: remembered{h: h}}
	r, err := b.Call(t.Context(), call.Call{ID: "c_1", Capability: "x"})
	if err == nil || r.Status != facts.Failed {
		t.Errorf("status %q, error %v", r.Status, err)
	}
}

func TestACancelledCallIsRecorded(t *testing.T) {
	for _, e := range []policy.Effect{policy.Allow, policy.Deny} {
		h := &fixture{effect: e}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := broker.Broker{Policy: h, Record: h, Approvals: h, Budget: h, Redact: h,
			Executors: map[contract.Transport]broker.Executor{contract.Direct: h}}
		if _, err := b.Call(ctx, call.Call{ID: "c_1", Capability: "x"}); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
}

// A call that its channel refuses is recorded as denied, and a flood of such calls cannot fill the log.
func TestRefuse(t *testing.T) {
	for _, row := range []struct {
		why    string
		h      fixture
		status facts.Status
		fails  bool
		steps  []string
		code   string
	}{
		{"recorded, never decided, never executed", fixture{effect: policy.Allow}, facts.Denied, false,
			[]string{"record decision", "record outcome", "done"}, "args.schema"},
		{
			"a session that has spent its calls fills no log",
			fixture{effect: policy.Allow, against: &call.Reason{Code: "session.budget"}}, facts.Denied, false,
			[]string{"done"}, "session.budget",
		},
		{"a log that cannot be written is an error", fixture{effect: policy.Allow, failRecord: "decision"}, facts.Failed, true,
			[]string{"record decision", "done"}, ""},
	} {
		b := broker.Broker{
			Policy: &row.h, Record: &row.h, Approvals: &row.h, Budget: &row.h, Redact: &row.h, Effects: remembered{h: &row.h},
			Executors: map[contract.Transport]broker.Executor{contract.Direct: &row.h},
		}
		r, err := b.Refuse(t.Context(), call.Call{ID: "c_1", Capability: "x"}, call.Reason{Code: "args.schema"})
		if r.Status != row.status || (err != nil) != row.fails || !slices.Equal(row.h.steps, row.steps) {
			t.Errorf("%s: %q, %v, steps %q", row.why, r.Status, err, row.h.steps)
		}
		if (row.h.later == 1) != row.fails { // the decision can be in the log all the same
			t.Errorf("%s: %d are recorded later", row.why, row.h.later)
		}
		if !row.fails && (r.Why[0].Code != row.code || r.Facts.SideEffect != facts.None || r.DecisionID == "" || !r.IsError) {
			t.Errorf("%s: %+v", row.why, r)
		}
	}
}

// TestFactsAreBounded: an executor's lists of names are cut before anything is made of them.
func TestFactsAreBounded(t *testing.T) {
	for _, n := range []int{1, 100_000} {
		h := fixture{effect: policy.Allow, written: make([]string, n)}
		r, err := h.call(t)
		if got := len(r.Facts.Files.Written); err != nil || got != min(n, facts.MaxList) ||
			(len(r.Facts.Cut) > 0) != (n > got) {
			t.Errorf("%d files: %d are told, cut %v: %v", n, got, r.Facts.Cut, err)
		}
	}
}

// TestBudgetsAreAsked: every call waits for its turn, also one that is refused, and an executed one is counted.
func TestBudgetsAreAsked(t *testing.T) {
	h := &fixture{effect: policy.Allow}
	if _, err := h.call(t); err != nil || h.paced != 1 || h.spent != 1 {
		t.Errorf("executed: paced %d, spent %d: %v", h.paced, h.spent, err)
	}
	b := broker.Broker{Policy: h, Record: h, Approvals: h, Budget: h, Redact: h, Effects: remembered{h: h}}
	if _, err := b.Refuse(t.Context(), call.Call{ID: "c_2"}, call.Reason{Code: "args.schema"}); err != nil ||
		h.paced != 2 || h.spent != 1 {
		t.Errorf("refused: paced %d, spent %d: %v", h.paced, h.spent, err)
	}
}
