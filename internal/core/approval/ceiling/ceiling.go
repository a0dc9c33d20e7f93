// Package ceiling keeps the approvals that a human gave for several calls at once. Such an approval is one signed yes
// to a call of request_approval, which names the capability, values that each call must hold, a number and a time.
// It lives in the memory of one process, counts down, and each use is on record.
package ceiling

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Asker puts a question to a human: approval.Service.
type Asker interface {
	Ask(ctx context.Context, d policy.Decision) (*approval.Answer, string, error)
}

// Service answers decisions by the ceilings of their session, and asks Next otherwise. It satisfies broker.Asker.
type Service struct {
	Next Asker
	Now  func() time.Time // nil: time.Now

	mu   sync.Mutex
	said map[string]*ceiling // yeses that are not in force yet, by decision
	open []*ceiling
}

// maxOpen bounds the ceilings of one process.
const maxOpen = 1000

// ceiling is one yes to several calls.
type ceiling struct {
	batch    call.Batch
	decision policy.Decision // that asked for it
	answer   approval.Answer
	left     int
	expires  time.Time
	tool     string // digest of the definition that the first call saw
}

func (k *Service) now() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

// Ask answers a call that a ceiling covers, and counts it. Other calls are asked about. A yes to request_approval
// takes force when Begin is called for its decision.
func (k *Service) Ask(ctx context.Context, d policy.Decision) (*approval.Answer, string, error) {
	if d.Call.Capability != contract.RequestApproval {
		if a := k.draw(d); a != nil {
			return a, "", nil
		}
		return k.Next.Ask(ctx, d)
	}
	a, waiting, err := k.Next.Ask(ctx, d)
	if err != nil || a == nil || !a.Yes || a.Refusal != "" || a.Key == "" {
		return a, waiting, err
	}
	b, err := call.ReadBatch(d.Call.Args)
	if err != nil {
		return nil, "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	if k.said == nil || len(k.said) >= maxOpen {
		k.said = map[string]*ceiling{}
	}
	k.said[d.ID] = &ceiling{batch: b, decision: d, answer: *a, left: b.Count, expires: k.now().Add(b.Life)}
	return a, "", nil
}

// Begin puts the yes to a decision in force, once its use is on record. It says until when and for how much.
func (k *Service) Begin(decisionID string) (text string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.said[decisionID]
	delete(k.said, decisionID)
	if c == nil || len(k.open) >= maxOpen {
		return "", false
	}
	k.open = append(k.open, c)
	return fmt.Sprintf("approved %s: up to %d calls of %s that hold these arguments, until %s", c.answer.ApprovalID,
		c.left, c.batch.Capability, c.expires.UTC().Format(time.RFC3339)), true
}

// draw takes one call from a ceiling that covers it; nil: none does.
func (k *Service) draw(d policy.Decision) *approval.Answer {
	if d.DryRun || d.Effect != policy.Ask || d.Call.ApprovalID != "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	for _, c := range k.open {
		if !c.covers(d) {
			continue
		}
		c.left--
		if c.tool == "" {
			c.tool = d.Call.ToolDigest
		}
		n := c.batch.Count - c.left
		return &approval.Answer{DecisionID: d.ID, ArgsDigest: d.Call.Args.Digest(), Capability: d.Call.Capability, Yes: true,
			By: approval.DrawnBy(c.answer.ApprovalID, n, c.batch.Count), At: c.answer.At,
			Reason: fmt.Sprintf("call %d of %d that %s approved", n, c.batch.Count, c.answer.By)}
	}
	return nil
}

// covers reports whether a yes is good for a decision. The session, the channel, the configuration, the class, the role
// and the number of approvers are those of the request. The danger is no higher, and each value is as approved.
func (c *ceiling) covers(d policy.Decision) bool {
	was := c.decision
	return c.left > 0 && d.Call.Capability == c.batch.Capability && c.batch.Holds(d.Call.Args) &&
		d.Call.Session == was.Call.Session && d.Call.Principal == was.Call.Principal && d.Call.Channel == was.Call.Channel &&
		d.Policy == was.Policy && d.Mode() == was.Mode() && d.Danger <= was.Danger &&
		d.Contract.Approval.Ceiling >= c.batch.Count && d.Contract.Approval.By == was.Contract.Approval.By &&
		d.Contract.Approval.Need == was.Contract.Approval.Need && d.Call.Run == nil &&
		(c.tool == "" || c.tool == d.Call.ToolDigest)
}

// sweep drops what is spent or over. The lock is held.
func (k *Service) sweep() {
	at := k.now()
	k.open = slices.DeleteFunc(k.open, func(c *ceiling) bool { return c.left <= 0 || !at.Before(c.expires) })
}

// Note says what a yes to request_approval allows; empty for other calls.
func Note(d policy.Decision) string {
	if d.Call.Capability != contract.RequestApproval {
		return ""
	}
	b, err := call.ReadBatch(d.Call.Args)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("a yes allows UP TO %d CALLS of %s that hold the values below \"arguments\", with ANY other "+
		"arguments, for %d minutes, to this session alone",
		b.Count, b.Capability, int(b.Life.Minutes()))
}
