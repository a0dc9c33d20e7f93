package approval

import (
	"encoding/json"
	"fmt"
	"time"

	"waldo/internal/call"
	"waldo/internal/contract"
	"waldo/internal/policy"
	"waldo/internal/wire"
)

// Question is what a human is asked: one call with its exact arguments.
type Question struct {
	ID         string          `json:"id"`
	DecisionID string          `json:"decision_id"` // the first decision that asked it
	Capability call.Capability `json:"capability"`
	Args       json.RawMessage `json:"args"` // RFC 8785, as the agent wrote them
	ArgsDigest string          `json:"args_digest"`
	ToolDigest string          `json:"tool_digest"` // of the definition that the agent saw
	Principal  call.Principal  `json:"principal"`
	Session    call.Session    `json:"session"`
	Door       string          `json:"door"`
	Policy     string          `json:"policy"`   // digest of the configuration
	Contract   string          `json:"contract"` // digest of the line that won, as completed
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Reasons    []call.Reason   `json:"reasons"`
	Role       string          `json:"role"`  // who may answer; empty: any approver
	Notes      []string        `json:"notes"` // what waldo itself found out: a resolved path, a file's digest
	Created    time.Time       `json:"created"`
	Expires    time.Time       `json:"expires"`
}

// binding is everything that a yes is good for. A call that differs in any of it is another call.
type binding struct {
	Capability call.Capability `json:"capability"`
	ArgsDigest string          `json:"args_digest"`
	ToolDigest string          `json:"tool_digest"`
	Principal  call.Principal  `json:"principal"`
	Session    call.Session    `json:"session"`
	Policy     string          `json:"policy"`
	Contract   string          `json:"contract"`
	Danger     int             `json:"danger"`
	Role       string          `json:"role"`
	Notes      []string        `json:"notes"`
}

// Binding returns the digest of what a yes to this question is good for, as "sha256:…".
func (q Question) Binding() string {
	return digestOf(binding{q.Capability, q.ArgsDigest, q.ToolDigest, q.Principal, q.Session, q.Policy, q.Contract, q.Danger, q.Role, q.Notes})
}

// newQuestion makes the question that a decision asks, without id and times.
func newQuestion(d policy.Decision, notes []string) (Question, error) {
	c := d.Call
	args, err := wire.Parse(c.Args.Raw())
	if err != nil {
		return Question{}, fmt.Errorf("approval: %w", err)
	}
	won := d.Contract
	won.Keys, won.At, won.Examples = nil, contract.Position{}, nil
	line, err := json.Marshal(won)
	if err != nil {
		return Question{}, fmt.Errorf("approval: %w", err)
	}
	return Question{
		DecisionID: d.ID, Capability: c.Capability, Args: args.Canonical(), ArgsDigest: c.Args.Digest(), ToolDigest: c.ToolDigest,
		Principal: c.Principal, Session: c.Session, Door: c.Door, Policy: d.Policy, Contract: wire.Digest(line), Mode: d.Contract.Mode.String(),
		Danger: d.Danger, Reasons: d.Reasons, Role: d.Contract.Approval.By, Notes: notes,
	}, nil
}

// genuine reports whether the question is still the one that was asked: its arguments fit their
// digest, and all of it fits the binding under which it is kept.
func (q Question) genuine(bound string) bool {
	v, err := wire.Parse(q.Args)
	return err == nil && v.Digest() == q.ArgsDigest && q.Binding() == bound
}

// digestOf returns the digest of a value of waldo's own as canonical JSON.
func digestOf(v any) string { return wire.Digest(canonical(v)) }

func canonical(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("approval: " + err.Error()) // values of waldo's own, made of strings and numbers
	}
	w, err := wire.Parse(b)
	if err != nil {
		panic("approval: " + err.Error())
	}
	return w.Canonical()
}
