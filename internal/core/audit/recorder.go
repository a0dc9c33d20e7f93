package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// The kinds of record that the pipeline writes.
const (
	KindDecision = "decision"
	KindAnswer   = "answer"
	KindOutcome  = "outcome"
	KindApprover = "approver"
)

// Limits on the parts of a record.
const (
	maxArgs    = 64 << 10 // bytes of redacted arguments
	maxReasons = 32
	maxNames   = 200 // roles
)

// Recorder writes the pipeline's records to a log. It satisfies broker.Recorder.
type Recorder struct {
	Log *Log
	// Args returns the arguments of a decision with secrets and personal data removed, as one JSON
	// object. Without it, and where it returns the zero Value, a record holds no arguments but their digest.
	Args func(d policy.Decision) strictjson.Value
	// Witness confirms, once an approval is recorded, that it is the first use. If two processes use one approval,
	// the order of the log lets one proceed. Nil disables the check.
	Witness *Witness
}

// Sized replaces bytes that the log does not hold.
type Sized struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}

func sized(b string) Sized { return Sized{len(b), hashOf([]byte(b))} }

// Decided is the body of a decision.
type Decided struct {
	DecisionID string          `json:"decision_id"`
	CallID     string          `json:"call_id"`
	Effect     policy.Effect   `json:"effect"`
	Reasons    []call.Reason   `json:"reasons"`
	Capability string          `json:"capability"`
	Principal  string          `json:"principal"`
	Session    string          `json:"session"`
	Channel    string          `json:"channel"`
	Parent     string          `json:"parent,omitempty"`
	Depth      int             `json:"depth,omitempty"`
	Mode       contract.Mode   `json:"mode"`
	Danger     int             `json:"danger"`
	Policy     string          `json:"policy,omitempty"` // digest of the configuration in force
	Contract   *ContractRef    `json:"contract"`         // nil: no line of the configuration won
	ArgsDigest string          `json:"args_digest"`      // of the arguments as asked (RFC 8785)
	Args       json.RawMessage `json:"args"`             // redacted; null: left out
	ArgsSize   *Sized          `json:"args_size,omitempty"`
	ToolDigest string          `json:"tool_digest,omitempty"`
	Run        json.RawMessage `json:"run,omitempty"`             // the operator's sandbox options; variables by name
	RunDigest  string          `json:"run_digest,omitempty"`      // of all of it
	Quoted     string          `json:"approval_quoted,omitempty"` // quoted by the agent; it proves nothing
	DryRun     bool            `json:"dry_run,omitempty"`
	Secrets    []string        `json:"secrets,omitempty"` // slots and names, never values
}

// ContractRef is the line of the configuration that won.
type ContractRef struct {
	Pattern   string             `json:"pattern"`
	Transport contract.Transport `json:"transport"`
	File      string             `json:"file,omitempty"`
	Line      int                `json:"line,omitempty"`
}

// Decision records a decision. The record of a write or high-risk act is on disk when this returns; any other is
// within 5 ms.
func (r *Recorder) Decision(ctx context.Context, d policy.Decision) error {
	c := d.Call
	body := Decided{
		DecisionID: d.ID, CallID: c.ID, Effect: d.Effect, Reasons: shortReasons(d.Reasons),
		Capability: short(string(c.Capability)), Principal: short(string(c.Principal)), Session: short(string(c.Session)),
		Channel: c.Channel, Parent: short(c.Parent), Depth: c.Depth, Mode: d.Mode(), Danger: d.Danger, Policy: d.Policy,
		ArgsDigest: c.Args.Digest(), ToolDigest: c.ToolDigest, RunDigest: c.Run.Digest(), Quoted: short(c.ApprovalID),
		DryRun: d.DryRun,
	}
	if p := d.Contract; p.Pattern != "" {
		body.Contract = &ContractRef{short(p.Pattern), p.Transport, p.At.File, p.At.Line}
	}
	for slot, ref := range d.Contract.Secrets {
		body.Secrets = append(body.Secrets, short(slot+"="+string(ref)))
	}
	sort.Strings(body.Secrets)
	body.Args, body.ArgsSize = r.args(d)
	if c.Run != nil {
		d.Call.Args = c.Run.Args()
		body.Run, _ = r.args(d)
	}
	acts := d.Effect != policy.Deny && !d.DryRun && d.Mode() != contract.Read
	return r.put(ctx, KindDecision, body.append(make([]byte, 0, 1<<10)), acts)
}

// args returns the redacted arguments, or their size and digest where they are too long.
func (r *Recorder) args(d policy.Decision) (json.RawMessage, *Sized) {
	if r.Args == nil {
		return nil, nil
	}
	b := d.Call.Args.Raw()
	if len(b) <= 4*maxArgs { // longer arguments are not parsed, regardless of the sender
		b = r.Args(d).Raw()
	}
	if len(b) > maxArgs {
		s := sized(string(b))
		return nil, &s
	}
	return b, nil
}

// Answered is the body of an answer.
type Answered struct {
	DecisionID string `json:"decision_id"`
	CallID     string `json:"call_id"`
	ApprovalID string `json:"approval_id"`
	Capability string `json:"capability"`
	ArgsDigest string `json:"args_digest"`
	Yes        bool   `json:"yes"`
	Refusal    string `json:"refusal,omitempty"` // the code, where waldo refused and no human
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
	At         string `json:"answered_at,omitempty"`

	Key       string          `json:"key,omitempty"`       // fingerprint of the approver's key
	Signed    json.RawMessage `json:"signed,omitempty"`    // the message that the approver signed
	Signature string          `json:"signature,omitempty"` // base64
	Also      []approval.Said `json:"also,omitempty"`      // of more approvers, where several are needed
}

// Answer records a human's answer before it is used; it is on the disk when this returns.
func (r *Recorder) Answer(ctx context.Context, d policy.Decision, a approval.Answer) error {
	body := answered(a)
	body.DecisionID, body.CallID = d.ID, d.Call.ID
	if err := r.append(ctx, KindAnswer, body, true); err != nil || r.Witness == nil || !a.Yes || a.Refusal != "" {
		return err
	}
	return r.Witness.confirm(ctx, d.ID, a.ApprovalID)
}

func answered(a approval.Answer) Answered {
	body := Answered{
		DecisionID: a.DecisionID, ApprovalID: short(a.ApprovalID), Capability: short(string(a.Capability)),
		ArgsDigest: a.ArgsDigest, Yes: a.Yes, Refusal: a.Refusal, By: short(string(a.By)), Reason: short(a.Reason),
		Key: a.Key, Signed: a.Signed, Signature: a.Signature, Also: a.Also,
	}
	if !a.At.IsZero() {
		body.At = a.At.UTC().Format(timeLayout)
	}
	return body
}

// TakenBack records that an approver took back a yes that no call has used; it is on the disk when
// this returns.
func (r *Recorder) TakenBack(ctx context.Context, a approval.Answer) error {
	return r.append(ctx, KindAnswer, answered(a), true)
}

// Enrolled is the body of a record of a change of approvers. It is written before the change, and again with failed
// if the change failed.
type Enrolled struct {
	approval.Enrolment
	User string `json:"principal"` // who typed it
}

// Approver records a change of who may answer; it is on the disk when this returns.
func (r *Recorder) Approver(ctx context.Context, user call.Principal, e approval.Enrolment) error {
	e.Approver, e.By, e.Failed, e.Roles = short(e.Approver), short(e.By), short(e.Failed),
		slices.Clone(e.Roles[:min(len(e.Roles), maxNames)])
	for i, role := range e.Roles {
		e.Roles[i] = short(role)
	}
	body := Enrolled{e, short(string(user))}
	return r.append(ctx, KindApprover, body, true)
}

// Ended is the body of an outcome.
type Ended struct {
	DecisionID string        `json:"decision_id"`
	CallID     string        `json:"call_id"`
	Capability string        `json:"capability"`
	Status     facts.Status  `json:"status"`
	IsError    bool          `json:"is_error"`
	Trust      call.Trust    `json:"trust"`
	Why        []call.Reason `json:"why,omitempty"`
	ApprovalID string        `json:"approval_id,omitempty"`
	Result     Sized         `json:"result"` // the text shown to the agent
	Facts      Facts         `json:"facts"`
}

// Facts are the facts of a call with its output as size and digest, never text.
type Facts struct {
	facts.Facts
	Stdout Sized `json:"stdout"` // as shown to the agent, redacted
	Stderr Sized `json:"stderr"`
}

// Outcome records how a call ended. For a write or a high-risk act it is on the disk when this
// returns.
func (r *Recorder) Outcome(ctx context.Context, d policy.Decision, res call.Result) error {
	text := ""
	for _, c := range res.Content {
		text += c.Text + string(c.Raw.Raw())
	}
	body := Ended{
		DecisionID: d.ID, CallID: d.Call.ID, Capability: short(string(d.Call.Capability)), Status: res.Status,
		IsError: res.IsError, Trust: res.Trust, Why: shortReasons(res.Why), ApprovalID: res.ApprovalID, Result: sized(text),
		Facts: shortFacts(res.Facts),
	}
	acted := res.Facts.SideEffect != facts.None && d.Mode() != contract.Read
	b := body.append(make([]byte, 0, 2<<10))
	if len(b) > MaxBody/3 { // the log writes é as six bytes
		f := facts.New()
		f.CallID, f.DecisionID, f.Status, f.ExitCode, f.Signal = res.Facts.CallID, res.Facts.DecisionID, res.Facts.Status,
			res.Facts.ExitCode, res.Facts.Signal
		f.Usage, f.Limits, f.Limit, f.SideEffect = res.Facts.Usage, res.Facts.Limits, res.Facts.Limit, res.Facts.SideEffect
		body.Why, body.Facts.Facts, body.Facts.Cut = nil, f, []string{"everything but the numbers"}
		b = body.append(b[:0])
	}
	return r.put(ctx, KindOutcome, b, acted)
}

func (r *Recorder) append(ctx context.Context, kind string, body any, sync bool) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("audit: %s: %w", kind, err)
	}
	return r.put(ctx, kind, b, sync)
}

// put appends a body that was written here, of values that are strict JSON: it is compact, and strict
// itself, and so not read once more.
func (r *Recorder) put(ctx context.Context, kind string, b []byte, sync bool) (err error) {
	foreign := func(c byte) bool { return c < ' ' || c > '~' }
	if len(b) > MaxBody || slices.ContainsFunc(b, foreign) {
		b = bounded(b)
	}
	_, err = r.Log.append(ctx, kind, b, sync)
	return err
}

// short cuts a text from outside and adds the count of bytes left out.
func short(s string) string { return facts.Short(s) }

func shortReasons(in []call.Reason) []call.Reason {
	out := make([]call.Reason, 0, min(len(in), maxReasons+1))
	for i, r := range in {
		if i == maxReasons {
			return append(out, call.Reason{Code: "audit.more", Text: fmt.Sprintf("%d more reasons", len(in)-i)})
		}
		r.Code, r.Text = short(r.Code), short(r.Text)
		out = append(out, r)
	}
	return out
}

func shortFacts(f facts.Facts) Facts {
	return Facts{Facts: f.Bounded(), Stdout: sized(f.Stdout), Stderr: sized(f.Stderr)}
}
