// Package broker is the pipeline: every call, from every channel, goes through Call.
package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/budget"
	"waldo/internal/core/approval"
	"waldo/internal/core/delegation"
	"waldo/internal/core/grant"
	"waldo/internal/core/hold"
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
	Outcome(ctx context.Context, d policy.Decision, r call.Result) (call.Logged, error)
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

// Witness shows the log to other machines before a call acts. It returns the reason against the call; nil: they
// cosigned the log.
type Witness interface {
	Cosigned(ctx context.Context) *call.Reason
	// Back returns the reason where a copy of the log elsewhere shows that this one went back in time. It returns nil
	// where there is no copy, or none can be reached.
	Back(ctx context.Context) *call.Reason
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

// Effects remembers calls that can have acted. Lost is for calls that are not tracked, the rest for those that are.
type Effects interface {
	// Earlier returns the recorded result of the call with the same key, or the reason against this one. Neither: the
	// call goes on.
	Earlier(ctx context.Context, d policy.Decision, args call.Args) (*call.Result, *call.Reason, error)
	// Begin notes that the call acts from now on and returns its arguments with its key, or what Earlier returns.
	Begin(ctx context.Context, d policy.Decision, args call.Args) (call.Args, *call.Result, *call.Reason, error)
	// End stores how a call ended, and reports whether its outcome is unknown.
	End(ctx context.Context, d policy.Decision, r call.Result, answered bool) (_ call.Result, open bool, _ error)
	// Settle finds out whether a call with an unknown outcome happened.
	Settle(ctx context.Context, callID string, as call.Call) (call.Settled, error)
	// Lost remembers a write whose outcome is unknown, and returns the digest of what it remembers.
	Lost(ctx context.Context, d policy.Decision, r call.Result, answered bool) (row string, err error)
	// Recorded notes that the outcome is in the log.
	Recorded(ctx context.Context, callID string) error
	// Later stores, unless that is done, and records in the background how a call ended: neither was possible.
	Later(ctx context.Context, d policy.Decision, r call.Result, answered, stored bool)
}

// Delegations holds calls to the authority that was handed down to their callers.
type Delegations interface {
	// Under returns the delegations that a call is made under, or the reason against the call; neither: there are none.
	Under(ctx context.Context, c call.Call) (*delegation.Chain, *call.Reason)
	// Decide decides in place of Decider.
	Decide(c call.Call, under *delegation.Chain) policy.Decision
	// Confirm returns why a recorded decision cannot be carried out.
	Confirm(ctx context.Context, d policy.Decision, under *delegation.Chain) *call.Reason
	// Bind returns a context that is cancelled, with a *call.Stop, when a delegation ends.
	Bind(ctx context.Context, under *delegation.Chain) (bound context.Context, done func())
}

// Broker is the reference monitor. Every field but Observer, Delegations, Witness and Held is needed.
type Broker struct {
	Observer  Observer    // nil: no call is followed
	Delegated Delegations // nil: a call that names a delegation is refused
	Witness   Witness     // nil: a call whose contract requires one is refused
	Held      Held        // nil: a program whose writes are held does not run
	Policy    Decider
	Record    Recorder
	Confirms  Confirmer
	Approvals Asker
	Budget    Budget
	Redact    Redactor
	Effects   Effects
	Executors map[contract.Transport]Executor
}

// Call takes one call from a channel to its result. A denial is a Result with reasons; an error is
// the operator's and says that waldo itself failed: nothing was done that is not recorded.
func (b *Broker) Call(ctx context.Context, c call.Call) (call.Result, error) {
	b.Budget.Pace(ctx, c)
	under, outside := b.under(ctx, &c)
	trail := b.observe(c)
	trail.Step(StepDecide, policy.Decision{})
	leave := budget.Turn(string(c.Principal), int64(len(c.Args.Raw())))
	d, restored, failed := b.decide(c, under)
	leave()
	if outside != nil {
		d.Effect, d.Reasons = policy.Deny, slices.Insert(d.Reasons, 0, *outside)
	}
	d.ID = id.New(id.Decision)
	covered(ctx, &d)
	return b.charged(ctx, d, under, restored, failed, trail)
}

// charged takes a decided call from its budgets, and then to its result.
func (b *Broker) charged(
	ctx context.Context, d policy.Decision, under *delegation.Chain, restored call.Args, failed error, trail Trail,
) (call.Result, error) {
	done, against := b.Budget.Take(d)
	defer done()
	if against == nil && d.Danger == 3 && d.Effect != policy.Deny && !d.DryRun && b.Witness != nil {
		against = b.Witness.Back(ctx)
	}
	if against != nil {
		d.Effect, d.Reasons = policy.Deny, slices.Insert(d.Reasons, 0, *against)
	}
	r, err := b.carryOut(ctx, d, under, restored, failed, trail)
	r = away(d, r, err)
	trail.End(d, r, err)
	r.Why = call.Reasons(r.Why).ForCallers()
	return r, err
}

// under returns the delegations of a call, and puts their ids in the place of the token that the call names.
func (b *Broker) under(ctx context.Context, c *call.Call) (*delegation.Chain, *call.Reason) {
	var under *delegation.Chain
	var against *call.Reason
	if b.Delegated != nil {
		under, against = b.Delegated.Under(ctx, *c)
	} else if c.Delegation != "" || len(c.Chain) > 0 {
		against = &call.Reason{Code: "delegation.unavailable", Text: "no delegation can be looked up here"}
	}
	c.Delegation, c.Proof, c.Chain = "", call.Proof{}, under.IDs()
	return under, against
}

// carryOut takes a decided call to its result.
func (b *Broker) carryOut(
	ctx context.Context, d policy.Decision, under *delegation.Chain, restored call.Args, failed error, trail Trail,
) (call.Result, error) {
	trail.Step(StepRecord, d)
	if r, err := b.decided(ctx, d); err != nil {
		return r, err // unrecorded is undone
	}
	if failed != nil {
		return b.refuse(ctx, d, "", failed)
	}
	ctx, unbind := b.Budget.Bind(ctx, d.Call.Session)
	defer unbind()
	if under != nil {
		ctx, unbind = b.Delegated.Bind(ctx, under)
		defer unbind()
		if against := b.confirmed(ctx, d, under); against != nil {
			d.Reasons = slices.Insert(d.Reasons, 0, *against)
			return b.refuse(ctx, d, "", nil)
		}
	}
	trail.Step(StepAsk, d)
	if l := hold.Of(ctx, d); l != nil {
		return b.collect(ctx, d, l)
	}
	hold.Pass(ctx)
	if d.Tracked() && d.Effect != policy.Deny && !d.DryRun {
		earlier, against, err := b.Effects.Earlier(ctx, d, restored)
		if r, ended, err := b.earlier(ctx, d, earlier, against, err); ended {
			return r, err
		}
	}
	if r, ended, err := b.confirm(ctx, d); ended {
		return r, err
	}
	answer, waiting, err := b.ask(ctx, d)
	if err == nil && answer != nil && answer.Refusal == "approval.used" && d.Tracked() {
		earlier, against, err := b.Effects.Earlier(ctx, d, restored)
		if r, ended, err := b.earlier(ctx, d, earlier, against, err); ended {
			return r, err
		}
	}
	var unwitnessed *call.Reason
	if err == nil && waiting == "" && (answer == nil || answer.Yes) { // a refusal acts on nothing
		unwitnessed = b.witnessed(ctx, d, answer)
	}
	if why := call.Stopped(ctx); why != nil { // while a human or a witness was asked
		if !slices.Contains(d.Reasons, *why) {
			d.Reasons = slices.Insert(d.Reasons, 0, *why)
		}
		return b.refuse(ctx, d, "", nil)
	}
	if err != nil || waiting != "" {
		return b.refuse(ctx, d, waiting, err)
	}
	against := unwitnessed
	if against == nil && (d.Effect == policy.Ask || d.Contract.Witness) { // meanwhile
		against = b.confirmed(ctx, d, under)
	}
	if against != nil {
		d.Reasons = slices.Insert(d.Reasons, 0, *against)
		return b.refuse(ctx, d, "", nil)
	}
	if restored, err = struck(d, answer, restored); err != nil {
		return b.refuse(ctx, d, "", err)
	}
	d.Call.Trace = trail.Step(StepExecute, d)
	g, why := grant.Issue(d, answer, restored)
	if why != nil {
		if d.Effect != policy.Deny { // a denial has its reasons already
			d.Reasons = slices.Insert(d.Reasons, 0, *why)
		}
		return b.refuse(ctx, d, "", nil)
	}
	if d.Tracked() {
		return b.track(ctx, d, answer, restored, trail)
	}
	r, answered, err := b.act(ctx, d, g, trail)
	if r.Facts.SideEffect == facts.Unknown && r.Status != facts.OK {
		row, lostErr := b.Effects.Lost(context.WithoutCancel(ctx), d, r, answered)
		r.Row, err = row, errors.Join(err, lostErr)
	}
	return b.record(ctx, d, r, err, trail)
}

// confirmed returns why a call under a delegation cannot be carried out, now that its decision is recorded.
func (b *Broker) confirmed(ctx context.Context, d policy.Decision, under *delegation.Chain) *call.Reason {
	if under == nil || d.Effect == policy.Deny || d.DryRun {
		return nil
	}
	return b.Delegated.Confirm(ctx, d, under)
}

// witnessed returns why a call whose contract requires a witness cannot act.
func (b *Broker) witnessed(ctx context.Context, d policy.Decision, answer *approval.Answer) *call.Reason {
	if !d.Contract.Witness || d.Effect == policy.Deny || d.DryRun {
		return nil
	}
	why := b.Cosigned(ctx)
	if why != nil && answer != nil && answer.Yes { // asked before, too: they see its use
		why.Text += "; the approval is used up, so ask again"
	}
	return why
}

// Cosigned shows the log to the witnesses.
func (b *Broker) Cosigned(ctx context.Context) *call.Reason {
	if b.Witness == nil {
		return &call.Reason{Code: "witness.unavailable", Text: "this waldo cannot ask a witness, which the contract requires"}
	}
	return b.Witness.Cosigned(ctx)
}

// act carries out a granted call. answered reports whether the tool answered.
func (b *Broker) act(
	ctx context.Context, d policy.Decision, g *grant.Grant, trail Trail,
) (r call.Result, answered bool, err error) {
	out, err := b.execute(ctx, d, g)
	trail.Step(StepRedact, d)
	leave := budget.Turn(string(d.Call.Principal), out.Size())
	r = b.Redact.Result(d, out)
	leave()
	out.Release()
	b.Budget.Spend(d.Call, r)
	if why := call.Stopped(ctx); why != nil && r.Status != facts.OK {
		r.Why = append(r.Why, *why)
	}
	return r, out.Answered, err
}

// record records how a call ended, also if the call was cancelled.
func (b *Broker) record(
	ctx context.Context, d policy.Decision, r call.Result, err error, trail Trail,
) (call.Result, error) {
	trail.Step(StepOutcome, d)
	r, rerr := b.outcome(ctx, d, r)
	if rerr != nil {
		return call.Result{}, fmt.Errorf("recording the outcome: side effect unknown: %w", errors.Join(rerr, err))
	}
	return r, err
}

// outcome records a result, also if the call was cancelled, and returns it with its place in the log. If it cannot be
// recorded now, it is recorded later.
func (b *Broker) outcome(ctx context.Context, d policy.Decision, r call.Result) (_ call.Result, err error) {
	r.Logged, err = b.Record.Outcome(context.WithoutCancel(ctx), d, r)
	if err != nil {
		b.Effects.Later(ctx, d, r, false, true)
	}
	return r, err
}

// track carries out a granted call that is remembered: under its key if it has one. It settles an unknown outcome, and
// tries again if the call did not happen and its contract allows that. One yes is good for all tries.
func (b *Broker) track(
	ctx context.Context, d policy.Decision, a *approval.Answer, restored call.Args, trail Trail,
) (call.Result, error) {
	lasting := context.WithoutCancel(ctx)
	for try := 0; ; try++ {
		if try > 0 {
			d.Call.Trace = trail.Step(StepExecute, d)
		}
		args, earlier, against, err := b.Effects.Begin(ctx, d, restored)
		if r, ended, err := b.earlier(ctx, d, earlier, against, err); ended {
			return r, err
		}
		g, why := grant.Issue(d, a, args)
		if why != nil {
			d.Reasons = slices.Insert(d.Reasons, 0, *why)
			return b.refuse(ctx, d, "", nil)
		}
		r, answered, err := b.act(ctx, d, g, trail)
		r, open, serr := b.Effects.End(lasting, d, r, answered)
		if serr != nil {
			b.Effects.Later(ctx, d, r, answered, false)
			return call.Result{}, fmt.Errorf("storing the outcome: side effect unknown: %w", errors.Join(serr, err))
		}
		if open && d.Contract.Settle.By != "" {
			r, serr = b.settle(ctx, d, r)
			if serr == nil && r.Settled == call.NotHappened && try < d.Contract.Retry.Max && d.Contract.Retry.After(r.Status == facts.Timeout) &&
				ctx.Err() == nil {
				continue
			}
		}
		ended, rerr := b.record(ctx, d, r, nil, trail)
		if rerr == nil && b.Effects.Recorded(lasting, d.Call.ID) != nil {
			b.Effects.Later(ctx, d, r, answered, true)
		}
		return ended, errors.Join(rerr, err, serr)
	}
}

// settle adds to a result what waldo finds out about its call.
func (b *Broker) settle(ctx context.Context, d policy.Decision, r call.Result) (call.Result, error) {
	word, err := b.Effects.Settle(context.WithoutCancel(ctx), d.Call.ID, d.Call) // also where the caller gave up
	r.Settled = word
	switch word {
	case call.Happened:
		r.Facts.SideEffect = facts.Confirmed
	case call.NotHappened:
		r.Facts.SideEffect = facts.None
	}
	if word == call.Happened || word == call.NotHappened {
		r.Content = slices.Clone(r.Content)
		for i := range r.Content {
			r.Content[i].Text = strings.TrimSuffix(r.Content[i].Text, call.NotKnown)
		}
	}
	r.Why = append(slices.Clone(r.Why), call.Reason{Code: "settle." + string(word),
		Text: "waldo looked with " + d.Contract.Settle.By})
	return r, err
}

// earlier ends a call whose key was used before: with the recorded result, or refused.
func (b *Broker) earlier(ctx context.Context, d policy.Decision, before *call.Result, why *call.Reason, err error) (
	r call.Result, ended bool, _ error,
) {
	switch {
	case before != nil:
		r, err = b.outcome(ctx, d, b.shown(d, *before))
		return r, true, err
	case why != nil:
		d.Reasons = slices.Insert(d.Reasons, 0, *why)
	case err == nil:
		return r, false, nil
	}
	r, err = b.refuse(ctx, d, "", err)
	return r, true, err
}

// shown is a recorded result for the caller of a new call: code and people at a terminal see what the model does not.
func (b *Broker) shown(d policy.Decision, r call.Result) call.Result {
	now := b.Redact.Result(d, call.Outcome{Content: r.Content, Structured: r.Structured, IsError: r.IsError, Trust: r.Trust,
		Facts: r.Facts, Undo: r.Undo})
	r.Content, r.Structured, r.Undo = now.Content, now.Structured, now.Undo
	r.Facts.Masked = max(r.Facts.Masked, now.Facts.Masked)
	return r
}

// decide decides on the arguments as the agent wrote them and as the tool gets them, with tokens replaced by their
// values. The stricter decision counts. It ends: the next round needs a decision that is stricter than the last.
func (b *Broker) decide(c call.Call, under *delegation.Chain) (d policy.Decision, restored call.Args, err error) {
	d = b.judge(c, under)
	for judged := c.Args.Digest(); d.Effect != policy.Deny; judged = restored.Digest() {
		if restored, err = b.Redact.Restore(d); err != nil {
			d.Effect = policy.Deny
			return d, call.Args{}, err
		}
		if restored.Digest() == judged {
			break
		}
		meant := c
		meant.Args = restored
		d = policy.Stricter(d, b.judge(meant, under))
	}
	return d, restored, nil
}

func (b *Broker) judge(c call.Call, under *delegation.Chain) policy.Decision {
	if under == nil {
		return b.Policy.Decide(c)
	}
	return b.Delegated.Decide(c, under)
}

// Refuse denies and records a call that its channel rejects, for example for arguments that do not fit the tool. It
// counts against the session as any denied call. Once the session has spent its calls, Refuse no longer records, so
// that a flood cannot fill the log.
func (b *Broker) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	b.Budget.Pace(ctx, c)
	_, outside := b.under(ctx, &c)
	trail := b.observe(c)
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Deny, Reasons: []call.Reason{why}, Call: c, Danger: 3}
	if outside != nil && *outside != why {
		d.Reasons = slices.Insert(d.Reasons, 0, *outside)
	}
	done, against := b.Budget.Take(d)
	defer done()
	r, err := b.deny(ctx, d, against)
	r = away(d, r, err)
	trail.End(d, r, err)
	return r, err
}

// deny records and answers a call that its channel rejects. With a reason of its session, it does not record.
func (b *Broker) deny(ctx context.Context, d policy.Decision, against *call.Reason) (call.Result, error) {
	if against != nil {
		d.Reasons = slices.Insert(d.Reasons, 0, *against)
		return unexecuted(d, facts.Denied), nil
	}
	if r, err := b.decided(ctx, d); err != nil {
		return r, err
	}
	return b.refuse(ctx, d, "", nil)
}

// decided records a decision, or returns that the call is not made. A record that failed can be in the log all the same:
// it then gets its outcome later.
func (b *Broker) decided(ctx context.Context, d policy.Decision) (r call.Result, err error) {
	if err = b.Record.Decision(ctx, d); err != nil {
		r, err = unexecuted(d, facts.Failed), fmt.Errorf("recording the decision: %w", err)
		b.Effects.Later(ctx, d, r, false, true)
	}
	return r, err
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
	r, err = b.outcome(ctx, d, r)
	return r, true, err
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
	out, err = b.carry(ctx, d, g)
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
	r, rerr := b.outcome(ctx, d, r)
	return r, errors.Join(err, rerr)
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
