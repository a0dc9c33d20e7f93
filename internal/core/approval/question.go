package approval

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// Question is the question to a human: one call with its exact arguments.
type Question struct {
	ID         string          `json:"id"`
	DecisionID string          `json:"decision_id"` // the first decision that asked it
	Capability call.Capability `json:"capability"`
	Args       json.RawMessage `json:"args"` // RFC 8785, as the agent wrote them
	ArgsDigest string          `json:"args_digest"`
	ToolDigest string          `json:"tool_digest"` // of the definition that the agent saw
	Principal  call.Principal  `json:"principal"`
	Run        json.RawMessage `json:"run,omitempty"`        // the operator's sandbox options; of variables, the names
	RunDigest  string          `json:"run_digest,omitempty"` // of all of it
	Session    call.Session    `json:"session"`
	Channel    string          `json:"channel"`
	Policy     string          `json:"policy"`         // digest of the configuration
	Contract   string          `json:"contract"`       // digest of the line that won, as completed
	File       string          `json:"file,omitempty"` // of that line; empty: a built-in contract
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Reasons    []call.Reason   `json:"reasons"`
	Role       string          `json:"role"`              // who may answer; empty: any approver
	Need       int             `json:"need,omitempty"`    // how many approvers must say yes, where it is more than one
	Notes      []string        `json:"notes"`             // waldo's own findings, such as the values of tokens
	Preview    []string        `json:"preview,omitempty"` // effect of the call, line by line, redacted as its result
	Asker      string          `json:"asker,omitempty"`   // the process of this session; empty: the session outlives it
	Created    time.Time       `json:"created"`
	Expires    time.Time       `json:"expires"`

	Until  time.Time `json:"-"` // when the call that asks stops waiting, for carriers; zero: not known
	since  *Before   // with which Show compares it; see Service.Since
	struck []int     // rows that Show marks; see Striking
}

// Typed is the danger from which a person types the last word of the capability's name for a yes.
const Typed = 3

// binding is everything that a yes is good for. A call that differs in any of it is another call.
type binding struct {
	Capability call.Capability `json:"capability"`
	ArgsDigest string          `json:"args_digest"`
	ToolDigest string          `json:"tool_digest"`
	Principal  call.Principal  `json:"principal"`
	Session    call.Session    `json:"session"`
	Run        json.RawMessage `json:"run,omitempty"`
	RunDigest  string          `json:"run_digest,omitempty"`
	Channel    string          `json:"channel"`
	Policy     string          `json:"policy"`
	Contract   string          `json:"contract"`
	File       string          `json:"file,omitempty"`
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Reasons    []call.Reason   `json:"reasons"`
	Role       string          `json:"role"`
	Need       int             `json:"need,omitempty"`
	Notes      []string        `json:"notes"`
	Preview    []string        `json:"preview,omitempty"`
}

// Binding returns the digest that an approval of this question is bound to, as "sha256:…".
func (q Question) Binding() string {
	return digestOf(binding{q.Capability, q.ArgsDigest, q.ToolDigest, q.Principal, q.Session, q.Run, q.RunDigest,
		q.Channel, q.Policy, q.Contract, q.File, q.Mode, q.Danger, q.Reasons, q.Role, q.Need, q.Notes, q.Preview})
}

// Digest returns the digest of all that the question holds, and so of all that Show prints, as
// "sha256:…". An answer is signed over it.
func (q Question) Digest() string { return digestOf(q) }

// newQuestion makes the question that a decision asks, without id and times.
func newQuestion(d policy.Decision, notes, preview []string) (Question, error) {
	c := d.Call
	args, err := strictjson.Parse(c.Args.Raw())
	if err != nil {
		return Question{}, fmt.Errorf("approval: %w", err)
	}
	won := d.Contract
	won.Keys, won.At, won.Examples = nil, contract.Position{}, nil
	line, err := json.Marshal(won)
	if err != nil {
		return Question{}, fmt.Errorf("approval: %w", err)
	}
	file := d.Contract.At.File
	if file != "" { // two folders can each have a waldo.yaml
		if file, err = filepath.Abs(file); err != nil {
			return Question{}, fmt.Errorf("approval: %w", err)
		}
	}
	need := d.Contract.Approval.Need
	if need <= 1 {
		need = 0 // one approver is enough, written or not
	}
	return Question{
		DecisionID: d.ID, Capability: c.Capability, Args: args.Canonical(), ArgsDigest: c.Args.Digest(),
		ToolDigest: c.ToolDigest, Run: c.Run.Record(), RunDigest: c.Run.Digest(), Principal: c.Principal, Session: c.Session,
		Channel: c.Channel, Policy: d.Policy, Contract: strictjson.Digest(line), File: file, Mode: d.Mode().String(), Danger: d.Danger,
		Reasons: d.Reasons, Role: d.Contract.Approval.By, Need: need, Notes: notes,
		Preview: preview,
	}, nil
}

// Binding returns what an approval of a decision would be bound to, without what waldo finds out for its question.
func Binding(d policy.Decision) (string, error) {
	q, err := newQuestion(d, nil, nil)
	return q.Binding(), err
}

// genuine reports whether the stored question is unchanged: its arguments match their digest, and the whole matches
// the stored binding.
func (q Question) genuine(bound string) bool {
	v, err := strictjson.Parse(q.Args)
	return err == nil && v.Digest() == q.ArgsDigest && bound != "" && q.Binding() == bound && q.Digest() != ""
}

// digestOf returns the digest of a value as canonical JSON. It is empty if the value has no such form, which a forged
// row can cause.
func digestOf(v any) string {
	b := canonical(v)
	if b == nil {
		return ""
	}
	return strictjson.Digest(b)
}

// canonical returns a value as RFC 8785 JSON; nil where it has no such form.
func canonical(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	w, err := strictjson.Parse(b)
	if err != nil {
		return nil
	}
	return w.Canonical()
}
