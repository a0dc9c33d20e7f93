package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"

	"waldo/internal/core/approval"
	"waldo/internal/core/delegation"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/detect/category"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// The kinds of record that the pipeline writes.
const (
	KindDecision = "decision"
	KindVerdict  = "verdict" // a human's answer, when it is given
	KindAnswer   = "answer"  // what a decision took from it: its use, a no, or a refusal of waldo's own
	KindOutcome  = "outcome"
	KindSettled  = "settled" // what waldo found out about a call with an unknown outcome
	KindApprover = "approver"
	kindGenesis  = "genesis"
	// KindDelegation is the kind of the records that create and revoke delegations.
	KindDelegation = "delegation"
	KindTrust      = "trust" // the first approver signed a configuration
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
	// Place returns where a session is; nil: records lack it.
	Place func(n call.Session) Place
	// Witness confirms, once an approval is recorded, that it is the first use. If two processes use one approval,
	// the order of the log lets one proceed. Nil disables the check.
	Witness *Witness

	started sync.Once
	folder  string // the working folder of this process; empty: not known
}

// Place is where a session is.
type Place struct {
	Workspace string // id of its folder
	Asker     string // the process that it ends with, as in package presence; empty: it outlives each
	Process   string // the process that makes its calls
	Folder    string // the working folder of that process, or of the command line; empty: neither
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
	Category   string          `json:"category,omitempty"` // of its command, by package category; it proves nothing
	Principal  string          `json:"principal"`
	Session    string          `json:"session"`
	Workspace  string          `json:"workspace,omitempty"` // id of the session's folder
	Channel    string          `json:"channel"`
	Agent      string          `json:"agent,omitempty"`   // as the agent host calls itself; it proves nothing
	Asker      string          `json:"asker,omitempty"`   // the process that the session ends with
	Process    string          `json:"process,omitempty"` // that makes the call, where there is no asker
	Folder     string          `json:"folder,omitempty"`  // the working folder of that process, or of the command line
	Parent     string          `json:"parent,omitempty"`
	Depth      int             `json:"depth,omitempty"`
	Delegation []string        `json:"delegation,omitempty"` // whose authority it was: the delegations, the root first
	Narrowest  string          `json:"narrowest,omitempty"`  // of those
	Mode       contract.Mode   `json:"mode"`
	Danger     int             `json:"danger"`
	Policy     string          `json:"policy,omitempty"`        // digest of the configuration in force
	Contract   *ContractRef    `json:"contract"`                // nil: no line of the configuration won
	ArgsDigest string          `json:"args_digest"`             // of the arguments as asked (RFC 8785)
	Args       json.RawMessage `json:"args"`                    // RFC 8785; null: left out
	Redacted   bool            `json:"args_redacted,omitempty"` // else args has the digest
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
		DecisionID: d.ID, CallID: c.ID, Effect: d.Effect, Reasons: r.shortReasons(d.Reasons),
		Capability: short(string(c.Capability)), Category: category.Of(string(c.Capability), c.Args.Values()),
		Principal: short(string(c.Principal)), Session: short(string(c.Session)), Channel: c.Channel, Agent: short(c.Agent),
		Parent: short(c.Parent), Depth: c.Depth, Mode: d.Mode(), Danger: d.Danger, Policy: d.Policy,
		ArgsDigest: c.Args.Digest(), ToolDigest: c.ToolDigest, RunDigest: c.Run.Digest(), Quoted: short(c.ApprovalID),
		DryRun: d.DryRun, Delegation: c.Chain, Narrowest: d.Narrowest,
	}
	if r.Place != nil {
		at := r.Place(c.Session)
		body.Workspace, body.Asker, body.Folder = at.Workspace, at.Asker, short(at.Folder)
		if at.Asker == "" {
			body.Process = at.Process
		}
	}
	if p := d.Contract; p.Pattern != "" {
		body.Contract = &ContractRef{short(p.Pattern), p.Transport, r.absolute(p.At.File), p.At.Line}
	}
	for slot, ref := range d.Contract.Secrets {
		body.Secrets = append(body.Secrets, short(slot+"="+string(ref)))
	}
	sort.Strings(body.Secrets)
	body.Args, body.ArgsSize = r.args(d)
	body.Redacted = body.Args != nil && strictjson.Digest(body.Args) != body.ArgsDigest
	if c.Run != nil {
		d.Call.Args = c.Run.Args()
		body.Run, _ = r.args(d)
	}
	permitted := d.Effect != policy.Deny && !d.DryRun
	seen := permitted && d.Contract.Witness // the heads limit what witnesses are shown
	b := body.append(make([]byte, 0, 1<<10))
	_, err := r.put(ctx, pending{kind: KindDecision, body: b, sync: seen || permitted && d.Mode() != contract.Read, pass: seen})
	return err
}

// args returns the redacted arguments in their RFC 8785 form, or their size and digest where they are too long.
func (r *Recorder) args(d policy.Decision) (json.RawMessage, *Sized) {
	if r.Args == nil {
		return nil, nil
	}
	b := d.Call.Args.Raw()
	if len(b) <= 4*maxArgs { // longer arguments are not parsed, regardless of the sender
		b = r.Args(d).Canonical()
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
	From      string          `json:"from,omitempty"`      // the state directory of the replica that took it
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
		From: short(a.From),
	}
	if !a.At.IsZero() {
		body.At = a.At.UTC().Format(TimeLayout)
	}
	return body
}

// Desk records what an approval service does, for a user of this machine.
type Desk struct {
	*Recorder
	User call.Principal
}

// Enrolled records who may answer.
func (d Desk) Enrolled(ctx context.Context, e approval.Enrolment) error {
	return d.Approver(ctx, d.User, e)
}

// Configured records a signed configuration of another replica.
func (d Desk) Configured(ctx context.Context, c approval.Configuration, from string) error {
	return d.Configuration(ctx, d.User, c, from)
}

// Passed records an answer that goes on to another waldo.
func (d Desk) Passed(ctx context.Context, e approval.Elsewhere, by string, yes bool) error {
	said := map[bool]string{true: "yes", false: "no"}[yes]
	return d.Log.Change(ctx, Change{Action: "approval.passed", User: string(d.User), Digest: e.Question.ArgsDigest,
		Object: fmt.Sprintf("%s: %s by %s, passed on by %s", e.Question.ID, said, by, e.Peer)})
}

// Verdict records a human's answer when it is given; it is on the disk when this returns.
func (r *Recorder) Verdict(ctx context.Context, a approval.Answer) error {
	return r.append(ctx, KindVerdict, answered(a), true)
}

// TooLate records an answer that no call can use any more; it is on the disk when this returns.
func (r *Recorder) TooLate(ctx context.Context, a approval.Answer) error {
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
	e.From = short(e.From)
	e.Approver, e.By, e.Failed, e.Roles = short(e.Approver), short(e.By), short(e.Failed),
		slices.Clone(e.Roles[:min(len(e.Roles), maxNames)])
	for i, role := range e.Roles {
		e.Roles[i] = short(role)
	}
	body := Enrolled{e, short(string(user))}
	return r.append(ctx, KindApprover, body, true)
}

// Configured is the body of a record of a signed configuration. It is written before the state directory takes it.
type Configured struct {
	approval.Configuration
	User string `json:"principal"`      // who typed it
	From string `json:"from,omitempty"` // the state directory of the replica that recorded it first
}

// Configuration records a signed configuration; it is on the disk when this returns.
func (r *Recorder) Configuration(
	ctx context.Context, user call.Principal, c approval.Configuration, from string,
) error {
	return r.append(ctx, KindTrust, Configured{c, short(string(user)), short(from)}, true)
}

// Ended is the body of an outcome.
type Ended struct {
	DecisionID string        `json:"decision_id"`
	CallID     string        `json:"call_id"`
	Capability string        `json:"capability"`
	Status     facts.Status  `json:"status"`
	IsError    bool          `json:"is_error"`
	OfTool     bool          `json:"of_tool,omitempty"` // the error is the tool's own answer
	Trust      call.Trust    `json:"trust"`
	Why        []call.Reason `json:"why,omitempty"`
	ApprovalID string        `json:"approval_id,omitempty"`
	ReplayOf   string        `json:"replay_of,omitempty"` // the call with the same key whose result was given
	UndoBy     string        `json:"undo_by,omitempty"`   // the capability that would undo the call
	Row        string        `json:"row"`                 // digest of what waldo remembers of the call; empty: nothing
	RowKey     string        `json:"row_key,omitempty"`   // the name of its key, and until when it counts
	Result     Sized         `json:"result"`              // the text shown to the agent
	Facts      Facts         `json:"facts"`
}

// Facts are the facts of a call with its output as size and digest, never text.
type Facts struct {
	facts.Facts
	Stdout Sized `json:"stdout"` // as shown to the agent, redacted
	Stderr Sized `json:"stderr"`
}

// Outcome records how a call ended. For a write or a high-risk act it is on the disk when this returns.
func (r *Recorder) Outcome(ctx context.Context, d policy.Decision, res call.Result) (call.Logged, error) {
	text := ""
	for _, c := range res.Content {
		text += c.Text + string(c.Raw.Raw())
	}
	body := Ended{
		DecisionID: d.ID, CallID: d.Call.ID, Capability: short(string(d.Call.Capability)), Status: res.Status,
		IsError: res.IsError, OfTool: res.IsError && res.Answered, Trust: res.Trust, Why: r.shortReasons(res.Why),
		ApprovalID: res.ApprovalID, Result: sized(text),
		Facts: shortFacts(res.Facts), ReplayOf: res.Replayed, Row: res.Row, RowKey: res.RowKey,
	}
	if res.Undo != nil && res.Replayed == "" {
		body.UndoBy = short(string(res.Undo.By))
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
	rec, err := r.put(ctx, pending{kind: KindOutcome, body: b, sync: acted})
	return call.Logged{Seq: rec.Seq, Digest: rec.Hash}, err
}

// Delegate records a delegation, or its end; it is on the disk when this returns.
func (r *Recorder) Delegate(ctx context.Context, d delegation.Record) error {
	return r.append(ctx, KindDelegation, d, true)
}

// Settled records what waldo found out about a call with an unknown outcome; it is on the disk when this returns.
func (r *Recorder) Settled(ctx context.Context, s effects.Settlement) error {
	return r.append(ctx, KindSettled, s, true)
}

func (r *Recorder) append(ctx context.Context, kind string, body any, sync bool) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("audit: %s: %w", kind, err)
	}
	_, err = r.put(ctx, pending{kind: kind, body: b, sync: sync})
	return err
}

// put appends a body that was written here, of values that are strict JSON: it is compact, and strict
// itself, and so not read once more.
func (r *Recorder) put(ctx context.Context, p pending) (Record, error) {
	foreign := func(c byte) bool { return c < ' ' || c > '~' }
	if len(p.body) > MaxBody || slices.ContainsFunc(p.body, foreign) {
		p.body = bounded(p.body)
	}
	return r.Log.append(ctx, p)
}

// short cuts a text from outside and adds the count of bytes left out.
func short(s string) string { return facts.Short(s) }

func (r *Recorder) shortReasons(in []call.Reason) []call.Reason {
	out := make([]call.Reason, 0, min(len(in), maxReasons+1))
	for i, one := range in {
		if i == maxReasons {
			return append(out, call.Reason{Code: "audit.more", Text: fmt.Sprintf("%d more reasons", len(in)-i)})
		}
		one.Code, one.Text, one.Cause, one.File = short(one.Code), short(one.Text), short(one.Cause), r.absolute(one.File)
		out = append(out, one)
	}
	return out
}

func shortFacts(f facts.Facts) Facts {
	return Facts{Facts: f.Bounded(), Stdout: sized(f.Stdout), Stderr: sized(f.Stderr)}
}

// absolute returns the path of a configuration that has several names: records of all folders are in one log.
func (r *Recorder) absolute(file string) string {
	if file == "" || file == "built-in" || filepath.IsAbs(file) { // the built-in contracts are in no file
		return file
	}
	r.started.Do(func() { r.folder, _ = os.Getwd() })
	if r.folder == "" {
		return file
	}
	return filepath.Join(r.folder, file)
}
