// Package broker is the pipeline: every call, from every channel, goes through Call.
package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"waldo/internal/core/approval"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Decider decides, without I/O.
type Decider interface {
	Decide(c call.Call) policy.Decision
}

// Recorder appends to the audit log and returns when the record is as durable as its kind asks.
type Recorder interface {
	Decision(ctx context.Context, d policy.Decision) error
	Answer(ctx context.Context, d policy.Decision, a approval.Answer) error
	Outcome(ctx context.Context, d policy.Decision, r call.Result) error
}

// Asker puts a question to a human. A nil answer with an approval id means that the question is still open: the call
// waits and the agent can retry, quoting that id.
type Asker interface {
	Ask(ctx context.Context, d policy.Decision) (a *approval.Answer, approvalID string, err error)
}

// Confirmer has a call made in two phases. It returns a preview, or the reason against the token that the call quotes;
// neither: the call goes on.
type Confirmer interface {
	Confirm(ctx context.Context, d policy.Decision) (*call.Preview, *call.Reason, error)
}

// Budget holds a session and a capability to their rates. Take returns the reason against the
// call, or a function to say that the call is over.
type Budget interface {
	Take(d policy.Decision) (done func(), against *call.Reason)
	// Pace waits until the calling program can begin one more call.
	Pace(ctx context.Context, c call.Call)
	// Spend counts what a call has used against its session.
	Spend(c call.Call, r call.Result)
	// Bind returns a context that is cancelled, with a *call.Stop, when the operator ends the session.
	Bind(ctx context.Context, n call.Session) (bound context.Context, done func())
}

// Executor turns a grant into action.
type Executor interface {
	Execute(ctx context.Context, g *grant.Grant) (call.Outcome, error)
}

// Redactor hides secrets and personal data from the agent, and puts tokens back for the tools.
type Redactor interface {
	Restore(d policy.Decision) (call.Args, error)
	Result(d policy.Decision, o call.Outcome) call.Result
}

// Broker is the reference monitor. Every field is needed.
type Broker struct {
	Policy    Decider
	Record    Recorder
	Confirms  Confirmer
	Approvals Asker
	Budget    Budget
	Redact    Redactor
	Executors map[contract.Transport]Executor
}

// Call takes one call from a channel to its result. A denial is a Result with reasons; an error is
// the operator's and says that waldo itself failed: nothing was done that is not recorded.
func (b *Broker) Call(ctx context.Context, c call.Call) (call.Result, error) {
	b.Budget.Pace(ctx, c)
	d := b.Policy.Decide(c)
	d.ID = id.New(id.Decision)
	done, against := b.Budget.Take(d)
	defer done()
	if against != nil {
		d.Effect, d.Reasons = policy.Deny, slices.Insert(d.Reasons, 0, *against)
	}
	if err := b.Record.Decision(ctx, d); err != nil {
		return call.Result{}, fmt.Errorf("recording the decision: %w", err) // unrecorded is undone
	}
	ctx, unbind := b.Budget.Bind(ctx, c.Session)
	defer unbind()
	if r, ended, err := b.confirm(ctx, d); ended {
		return r, err
	}
	answer, waiting, err := b.ask(ctx, d)
	if why := call.Stopped(ctx); why != nil { // while a human was asked
		if !slices.Contains(d.Reasons, *why) {
			d.Reasons = slices.Insert(d.Reasons, 0, *why)
		}
		return b.refuse(ctx, d, "", nil)
	}
	if err != nil || waiting != "" {
		return b.refuse(ctx, d, waiting, err)
	}
	restored, err := b.Redact.Restore(d)
	if err != nil {
		return b.refuse(ctx, d, "", err)
	}
	g, why := grant.Issue(d, answer, restored)
	if why != nil {
		if d.Effect != policy.Deny { // a denial has its reasons already
			d.Reasons = slices.Insert(d.Reasons, 0, *why)
		}
		return b.refuse(ctx, d, "", nil)
	}
	out, err := b.execute(ctx, d, g)
	r := b.Redact.Result(d, out)
	b.Budget.Spend(c, r)
	if why := call.Stopped(ctx); why != nil && r.Status != facts.OK {
		r.Why = append(r.Why, *why)
	}
	if rerr := b.Record.Outcome(context.WithoutCancel(ctx), d, r); rerr != nil { // record it even if cancelled
		return call.Result{}, fmt.Errorf("recording the outcome: side effect unknown: %w", errors.Join(rerr, err))
	}
	return r, err
}

// Refuse denies and records a call that its channel rejects, for example for arguments that do not fit the tool. It
// counts against the session as any denied call. Once the session has spent its calls, Refuse no longer records, so
// that a flood cannot fill the log.
func (b *Broker) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	b.Budget.Pace(ctx, c)
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Deny, Reasons: []call.Reason{why}, Call: c, Danger: 3}
	done, against := b.Budget.Take(d)
	defer done()
	if against != nil {
		d.Reasons = slices.Insert(d.Reasons, 0, *against)
		return unexecuted(d, facts.Denied), nil
	}
	if err := b.Record.Decision(ctx, d); err != nil {
		return call.Result{}, fmt.Errorf("recording the decision: %w", err)
	}
	return b.refuse(ctx, d, "", nil)
}

// confirm ends a call that its contract has previewed first, until it quotes the token of its preview.
func (b *Broker) confirm(ctx context.Context, d policy.Decision) (r call.Result, ended bool, err error) {
	if !d.Contract.Confirm || d.Effect == policy.Deny {
		return r, false, nil
	}
	p, against, err := b.Confirms.Confirm(ctx, d)
	switch {
	case err != nil:
		r, err = b.refuse(ctx, d, "", err)
		return r, true, err
	case against != nil:
		d.Reasons = slices.Insert(d.Reasons, 0, *against)
		r, err = b.refuse(ctx, d, "", nil)
		return r, true, err
	case p == nil:
		return r, false, nil
	}
	d.Reasons = slices.Insert(d.Reasons, 0, call.Reason{Code: "confirm.needed", Text: "the contract has the call previewed"})
	r = unexecuted(d, facts.Waiting)
	r.Preview, r.Content = p, []call.Content{call.Text(p.Text)}
	return r, true, b.Record.Outcome(context.WithoutCancel(ctx), d, r)
}

// ask asks a human where the decision says so, and records the answer before it is used.
func (b *Broker) ask(ctx context.Context, d policy.Decision) (*approval.Answer, string, error) {
	if d.Effect != policy.Ask {
		return nil, "", nil
	}
	over := call.Wait(ctx) // the clock of the calling code pauses
	a, waiting, err := b.Approvals.Ask(ctx, d)
	over()
	if err != nil || a == nil {
		return nil, waiting, err
	}
	return a, "", b.Record.Answer(ctx, d, *a)
}

// execute hands the grant to the one executor that the contract's transport names.
func (b *Broker) execute(ctx context.Context, d policy.Decision, g *grant.Grant) (out call.Outcome, err error) {
	if e := b.Executors[d.Contract.Transport]; e != nil {
		out, err = e.Execute(ctx, g)
	} else {
		err = fmt.Errorf("capability %s: no executor for transport %q", d.Call.Capability, d.Contract.Transport)
	}
	if err != nil && out.Facts.Status == "" {
		out.Facts = facts.New()
		out.Facts.Status = facts.Failed
	}
	out.Facts = out.Facts.Bounded() // before anything is made of them: code in a sandbox chose their length
	out.Facts.CallID, out.Facts.DecisionID = d.Call.ID, d.ID
	return out, err
}

// refuse ends a call that was not executed: denied, waiting for a human, or failed by us.
func (b *Broker) refuse(ctx context.Context, d policy.Decision, waiting string, err error) (call.Result, error) {
	status := facts.Denied
	if waiting != "" {
		status = facts.Waiting
	}
	if err != nil {
		status = facts.Failed
	}
	r := unexecuted(d, status)
	r.ApprovalID = waiting
	return r, errors.Join(err, b.Record.Outcome(context.WithoutCancel(ctx), d, r))
}

// unexecuted is the result of a call that was not executed.
func unexecuted(d policy.Decision, status facts.Status) call.Result {
	f := facts.New()
	f.Status, f.SideEffect = status, facts.None
	f.CallID, f.DecisionID = d.Call.ID, d.ID
	return call.Result{
		CallID: d.Call.ID, DecisionID: d.ID, Status: status, IsError: true, Trust: call.Trusted, Facts: f, Why: d.Reasons,
	}
}
