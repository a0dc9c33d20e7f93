package broker

import (
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

// Step is a part of the pipeline that takes time.
type Step string

// The steps of a call, in their order. A refused call has only the first ones.
const (
	StepDecide  Step = "decide"
	StepRecord  Step = "record" // of the decision, until it is as durable as its class asks
	StepAsk     Step = "ask"
	StepExecute Step = "execute"
	StepRedact  Step = "redact"
	StepOutcome Step = "outcome" // its record
)

// Observer follows calls for telemetry. It must not block. What it sees is not evidence: the log is.
type Observer interface {
	// Begin starts to follow a call.
	Begin(c call.Call) Trail
}

// Trail follows one call.
type Trail interface {
	// Step begins a step and ends the one before. It returns the place of the step in the trace, for servers and code
	// that the step calls.
	Step(s Step, d policy.Decision) call.Trace
	// End ends the call. d is the zero Decision if the call was not decided.
	End(d policy.Decision, r call.Result, err error)
}

// unobserved is the trail of a call that no observer follows. The call keeps its place in the trace.
type unobserved struct{ place call.Trace }

func (u unobserved) Step(Step, policy.Decision) call.Trace { return u.place }
func (unobserved) End(policy.Decision, call.Result, error) {}

// observe starts to follow a call.
func (b *Broker) observe(c call.Call) Trail {
	if b.Observer == nil {
		return unobserved{c.Trace}
	}
	return b.Observer.Begin(c)
}
