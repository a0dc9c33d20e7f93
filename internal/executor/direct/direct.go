// Package direct carries out waldo's own tools that need no sandbox, such as files.read. Each tool holds to the bounds
// of its contract by itself.
package direct

import (
	"context"
	"errors"
	"time"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// Tool carries out one capability.
type Tool struct {
	call.Tool // its definition for agents

	// Run acts. The decision is a redeemed grant's; the context ends at the contract's timeout. An error means that
	// waldo itself failed; mistakes of the caller are a Refuse or a Fail.
	Run func(ctx context.Context, d policy.Decision) (call.Outcome, error)

	// Preview returns what the call would do, for the human who is asked: a diff, a request. It acts on nothing, and
	// the answer is bound to its text. It may be nil.
	Preview func(ctx context.Context, d policy.Decision) []string

	// Judge weighs the arguments of a call, without I/O: a danger, or a reason that refuses it. It may be nil.
	Judge func(c call.Call, k contract.Contract) (danger int, why *call.Reason)
}

// Executor finds the tool of a capability.
type Executor map[call.Capability]Tool

// New returns the executor of tools.
func New(tools ...Tool) Executor {
	e := Executor{}
	for _, t := range tools {
		e[t.Capability] = t
	}
	return e
}

// Execute redeems g and runs its tool within the contract's timeout.
func (e Executor) Execute(ctx context.Context, g *grant.Grant) (call.Outcome, error) {
	d, err := g.Redeem()
	if err != nil {
		return call.Outcome{}, err
	}
	tool, ok := e[d.Call.Capability]
	if !ok {
		return Refuse(call.Reason{
			Code: "tool.absent", Text: "waldo has no tool " + string(d.Call.Capability) + " of its own",
		}), nil
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.Contract.Timeout)
	defer cancel()
	out, err := tool.Run(ctx, d)
	out.Facts.Usage.WallMS = float64(time.Since(begun).Microseconds()) / 1000
	if ctx.Err() != nil && out.Facts.Status != facts.OK && out.Refused == nil {
		ended(&out, ctx.Err())
		err = nil
	}
	return out, err
}

// ended says how a call ended that its context cut short. Its effect by then can be unknown.
func ended(out *call.Outcome, cause error) {
	wall := out.Facts.Usage.WallMS
	effect := out.Facts.SideEffect
	out.Facts, out.IsError = facts.New(), true
	out.Facts.Usage.WallMS, out.Facts.SideEffect = wall, effect
	out.Facts.Status = facts.Cancelled
	text := "the call was cancelled"
	if errors.Is(cause, context.DeadlineExceeded) {
		limit := facts.LimitWall
		out.Facts.Status, out.Facts.TimedOut, out.Facts.Limit = facts.Timeout, true, &limit
		text = "the call took longer than timeout_seconds of its contract"
	}
	out.Content = []call.Content{call.Text(text)}
}

// Preview returns what a call would do, line by line, for the question to a human.
func (e Executor) Preview(ctx context.Context, d policy.Decision) []string {
	if t, ok := e[d.Call.Capability]; ok && t.Preview != nil {
		return t.Preview(ctx, d)
	}
	return nil
}

// Judge weighs the arguments of a call.
func (e Executor) Judge(c call.Call, k contract.Contract) (danger int, why *call.Reason) {
	if t, ok := e[c.Capability]; ok && t.Judge != nil {
		return t.Judge(c, k)
	}
	return 0, nil
}

// Tools returns the definitions.
func (e Executor) Tools() []call.Tool {
	list := make([]call.Tool, 0, len(e))
	for _, t := range e {
		list = append(list, t.Tool)
	}
	return list
}

// Done returns the outcome of a call that succeeded. The zero side effect is unknown: say what is known.
func Done(effect facts.SideEffect, content ...call.Content) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.OK, effect
	return call.Outcome{Content: content, Facts: f}
}

// Fail returns the outcome of a call that began and did not succeed, with a text for the model.
func Fail(effect facts.SideEffect, text string) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, effect
	return call.Outcome{IsError: true, Facts: f, Content: []call.Content{call.Text(text)}}
}

// Refuse returns the outcome of a call that a guard refused before it began.
func Refuse(why call.Reason) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	f.Warnings = []string{why.Code + ": " + why.Text}
	return call.Outcome{IsError: true, Refused: &why, Facts: f, Content: []call.Content{call.Text(why.Text)}}
}
