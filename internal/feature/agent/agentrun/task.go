package agentrun

import (
	"context"
	"errors"
	"fmt"

	"waldo/internal/app"
	"waldo/internal/core/redact"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/feature/agent/transcript"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// maxTask is how many bytes a task of somebody else has at most.
const maxTask = 256 << 10

// Give satisfies app.Agent. The agent works under a new delegation by the principal whose task it is: the contracts
// decide for both, and its end ends the work.
func (s Service) Give(ctx context.Context, t app.Task) (call.Result, error) {
	r, why, err := s.given(ctx, t)
	if err != nil || why != nil {
		return denied(why), err
	}
	ctx, done, why := s.Bound(ctx, call.Call{Principal: r.Who, Chain: r.chain})
	defer done()
	if why != nil {
		return denied(why), r.end(loop.Stopped)
	}
	out, err := r.Go(ctx)
	if out.End == loop.Failed {
		return call.Result{}, fmt.Errorf("agent %s: %s", r.ID, s.Clean(out.Why))
	}
	return resultOf(ctx, out), err
}

// given starts the agent of a task, or goes on with it. Its first entry holds the delegation that it inherits.
func (s Service) given(ctx context.Context, t app.Task) (r *Run, why *call.Reason, err error) {
	switch {
	case !s.Config.Agent.Expose:
		return nil, &call.Reason{Code: "a2a.unexposed", Text: "the agent is not exposed to agents elsewhere"}, nil
	case len(t.Text) > maxTask:
		return nil, &call.Reason{Code: "agent.task", Text: fmt.Sprintf("the task is longer than %d bytes", maxTask)}, nil
	}
	o := Options{Watch: func(loop.Event) {}}
	if r, err = s.Resume(ctx, string(t.ID), "", o); !errors.Is(err, transcript.ErrNone) {
		return r, nil, err
	}
	link, why, err := s.Inherit(ctx, t.By, t.Chain, s.Principal())
	if err != nil || why != nil {
		return nil, why, err
	}
	r, err = s.start(t.ID, s.Clean(redact.Clean(t.Text)), loop.Channel, []string{link.ID}, o)
	return r, nil, err
}

// denied is the result of a task that the agent does not work on.
func denied(why *call.Reason) call.Result {
	r := call.Result{Status: facts.Denied, IsError: true, Facts: facts.New()}
	if why != nil {
		r.Why = []call.Reason{*why}
	}
	return r
}

// resultOf is an outcome for the one whose task it is. What the calls of the agent did is in the log.
func resultOf(ctx context.Context, o loop.Outcome) call.Result {
	r := call.Result{Status: facts.Failed, IsError: true, Facts: facts.New()}
	if o.Text != "" {
		r.Content = []call.Content{call.Text(o.Text)}
	}
	stop := call.Stopped(ctx)
	switch o.End {
	case loop.Done:
		r.Status, r.IsError = facts.OK, false
	case loop.Waiting:
		r.Status, r.IsError, r.ApprovalID = facts.Waiting, false, o.Approvals[0]
	case loop.Cancelled:
		if r.Status = facts.Cancelled; stop != nil {
			r.Status, r.Why = facts.Denied, []call.Reason{*stop}
		}
	case loop.Steps, loop.Tokens, loop.Time:
		r.Why = []call.Reason{{Code: "agent.limit", Text: o.Why}}
	default: // the model, or the operator
		r.Status, r.Why = facts.Denied, []call.Reason{{Code: "agent." + string(o.End), Text: o.Why}}
	}
	return r
}
