// Package grant makes the only key to the workers: permission to execute one decided call, once.
// A grant never leaves the process.
package grant

import (
	"errors"
	"sync/atomic"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

// Grant permits one execution. The zero Grant permits none.
type Grant struct {
	live atomic.Bool
	d    policy.Decision
	args call.Args
}

// ErrSpent is Redeem's error for a grant that is zero or was redeemed before.
var ErrSpent = errors.New("grant: nothing to redeem: it was never issued or is already spent")

// Issue makes a grant for an allowed decision, or for an asked one with the yes that answers it:
// the same decision, capability and arguments. Otherwise it returns nil and the reason. The
// arguments given to the worker are restored, which may differ from those decided on only in
// that tokens for personal data are put back.
func Issue(d policy.Decision, a *approval.Answer, restored call.Args) (*Grant, *call.Reason) {
	if d.ID == "" {
		return nil, &call.Reason{Code: "grant.unrecorded", Text: "the decision has no id, so it was never recorded"}
	}
	if d.DryRun {
		return nil, &call.Reason{Code: "grant.dry_run", Text: "a dry run executes nothing"}
	}
	switch d.Effect {
	case policy.Allow:
	case policy.Ask:
		if why := refuse(d, a); why != nil {
			return nil, why
		}
		d.Call.ApprovalID = a.ApprovalID
	default:
		return nil, &call.Reason{Code: "grant.denied", Text: "the decision is to deny"}
	}
	g := &Grant{d: d, args: restored}
	g.live.Store(true)
	return g, nil
}

func refuse(d policy.Decision, a *approval.Answer) *call.Reason {
	switch {
	case a == nil:
		return &call.Reason{Code: "approval.absent", Text: "the approval has no answer yet"}
	case a.DecisionID != d.ID || a.Capability != d.Call.Capability || a.ArgsDigest != d.Call.Args.Digest():
		return &call.Reason{Code: "approval.mismatch", Text: "the answer belongs to another decision or to other arguments"}
	case a.Refusal != "":
		return &call.Reason{Code: a.Refusal, Text: a.Reason}
	case !a.Yes:
		text := "a human said no"
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		return &call.Reason{Code: "approval.refused", Text: text}
	}
	return nil
}

// Redeem returns the decision to carry out, with the restored arguments in its call. It works once.
func (g *Grant) Redeem() (policy.Decision, error) {
	if g == nil || !g.live.CompareAndSwap(true, false) {
		return policy.Decision{}, ErrSpent
	}
	d := g.d
	d.Call.Args = g.args
	return d, nil
}
