package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"waldo/internal/approval"
	"waldo/internal/call"
	"waldo/internal/contract"
	"waldo/internal/facts"
	"waldo/internal/policy"
	"waldo/internal/wire"
)

// The kinds of record that the corridor writes.
const (
	KindDecision = "decision"
	KindAnswer   = "answer"
	KindOutcome  = "outcome"
	KindApprover = "approver"
)

// What a record holds of one thing at most.
const (
	maxArgs     = 64 << 10 // bytes of redacted arguments
	maxText     = 2 << 10  // bytes of a name or a reason
	maxReasons  = 32
	maxNames    = 200  // files, hosts or denials
	maxPackages = 1000 // that were fetched
)

// Recorder writes the corridor's records to a log. It satisfies broker.Recorder.
type Recorder struct {
	Log *Log
	// Args returns the arguments of a decision with secrets and personal data removed, as one JSON
	// object. Without it, and where it returns the zero Value, a record holds no arguments but their digest.
	Args func(d policy.Decision) wire.Value
}

// Sized stands for bytes that the log does not hold.
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
	Door       string          `json:"door"`
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
	Quoted     string          `json:"approval_quoted,omitempty"` // what the agent quoted; it proves nothing
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

// Decision records a decision. One that leads to a write or a high-risk act is on the disk when
// this returns; one that only reads, or refuses, is within 5 ms.
func (r *Recorder) Decision(ctx context.Context, d policy.Decision) error {
	c := d.Call
	body := Decided{
		DecisionID: d.ID, CallID: c.ID, Effect: d.Effect, Reasons: shortReasons(d.Reasons),
		Capability: short(string(c.Capability)), Principal: short(string(c.Principal)), Session: short(string(c.Session)),
		Door: c.Door, Parent: short(c.Parent), Depth: c.Depth, Mode: d.Contract.Mode, Danger: d.Danger, Policy: d.Policy,
		ArgsDigest: c.Args.Digest(), ToolDigest: c.ToolDigest, Quoted: short(c.ApprovalID), DryRun: d.DryRun,
	}
	if p := d.Contract; p.Pattern != "" {
		body.Contract = &ContractRef{short(p.Pattern), p.Transport, p.At.File, p.At.Line}
	}
	for slot, ref := range d.Contract.Secrets {
		body.Secrets = append(body.Secrets, short(slot+"="+string(ref)))
	}
	sort.Strings(body.Secrets)
	body.Args, body.ArgsSize = r.args(d)
	acts := d.Effect != policy.Deny && !d.DryRun && d.Contract.Mode != contract.Read
	return r.put(ctx, KindDecision, body.append(make([]byte, 0, 1<<10)), acts)
}

// args returns the redacted arguments, or their size and digest where they are too long.
func (r *Recorder) args(d policy.Decision) (json.RawMessage, *Sized) {
	if r.Args == nil {
		return nil, nil
	}
	b := d.Call.Args.Raw()
	if len(b) <= 4*maxArgs { // longer ones are not looked through, whoever sends them
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
}

// Answer records a human's answer before it is used; it is on the disk when this returns.
func (r *Recorder) Answer(ctx context.Context, d policy.Decision, a approval.Answer) error {
	body := Answered{d.ID, d.Call.ID, a.ApprovalID, short(string(a.Capability)), a.ArgsDigest, a.Yes, a.Refusal,
		short(string(a.By)), short(a.Reason), ""}
	if !a.At.IsZero() {
		body.At = a.At.UTC().Format(timeLayout)
	}
	return r.append(ctx, KindAnswer, body, true)
}

// Enrolled is the body of a record of who may answer: it stands before the change is made, and once more,
// with failed, where it then was not.
type Enrolled struct {
	Action   string   `json:"action"` // enrol or revoke
	Approver string   `json:"approver"`
	Key      string   `json:"key,omitempty"` // fingerprint
	Roles    []string `json:"roles,omitempty"`
	By       string   `json:"by"`        // who signs
	User     string   `json:"principal"` // who typed it
	Failed   string   `json:"failed,omitempty"`
}

// Approver records a change of who may answer; it is on the disk when this returns.
func (r *Recorder) Approver(ctx context.Context, user call.Principal, e approval.Enrolment) error {
	body := Enrolled{e.Action, short(e.Approver), e.Key, nil, short(e.By), short(string(user)), short(e.Failed)}
	for _, role := range e.Roles[:min(len(e.Roles), maxNames)] {
		body.Roles = append(body.Roles, short(role))
	}
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
	Stdout Sized    `json:"stdout"` // as shown to the agent, redacted
	Stderr Sized    `json:"stderr"`
	Cut    []string `json:"cut,omitempty"` // the lists that were longer than the log holds
}

// Outcome records how a call ended. For a write or a high-risk act it is on the disk when this
// returns.
func (r *Recorder) Outcome(ctx context.Context, d policy.Decision, res call.Result) error {
	text := ""
	for _, c := range res.Content {
		text += c.Text + string(c.Raw.Raw())
	}
	body := Ended{
		DecisionID: d.ID, CallID: d.Call.ID, Capability: short(string(d.Call.Capability)), Status: res.Status, IsError: res.IsError,
		Trust: res.Trust, Why: shortReasons(res.Why), ApprovalID: res.ApprovalID, Result: sized(text), Facts: shortFacts(res.Facts),
	}
	acted := res.Facts.SideEffect != facts.None && d.Contract.Mode != contract.Read
	b := body.append(make([]byte, 0, 2<<10))
	if len(b) > MaxBody/3 { // the log writes é as six bytes
		f := facts.New()
		f.CallID, f.DecisionID, f.Status, f.ExitCode, f.Signal = res.Facts.CallID, res.Facts.DecisionID, res.Facts.Status, res.Facts.ExitCode, res.Facts.Signal
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

// short cuts a text that somebody else chose; what is left out is counted.
func short(s string) string {
	if len(s) <= maxText {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes, sha256 %s)", s[:256], len(s), hashOf([]byte(s)))
}

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
	out := Facts{Facts: f, Stdout: sized(f.Stdout), Stderr: sized(f.Stderr)}
	cut := func(name string, list *[]string) {
		if len(*list) > maxNames {
			*list, out.Cut = (*list)[:maxNames], append(out.Cut, name)
		}
		for i, s := range *list {
			if len(s) > maxText {
				*list = append([]string(nil), *list...)
				(*list)[i] = short(s)
			}
		}
	}
	cut("files.read", &out.Files.Read)
	cut("files.written", &out.Files.Written)
	cut("files.artifacts", &out.Files.Artifacts)
	cut("network.allowed_hosts", &out.Network.AllowedHosts)
	cut("network.contacted", &out.Network.Contacted)
	cut("network.denied", &out.Network.Denied)
	cut("denials_seen", &out.Seen)
	cut("warnings", &out.Warnings)
	if len(out.Denials) > maxNames {
		out.Denials, out.Cut = out.Denials[:maxNames], append(out.Cut, "denials")
	}
	if len(out.Network.Attempts) > maxNames {
		out.Network.Attempts, out.Cut = out.Network.Attempts[:maxNames], append(out.Cut, "network.attempts")
	}
	out.Network.Attempts = slices.Clone(out.Network.Attempts)
	for i := range out.Network.Attempts {
		out.Network.Attempts[i].Host = short(out.Network.Attempts[i].Host)
	}
	if len(out.Network.Packages) > maxPackages {
		out.Network.Packages, out.Cut = out.Network.Packages[:maxPackages], append(out.Cut, "network.packages")
	}
	out.Network.Packages = slices.Clone(out.Network.Packages)
	for i, p := range out.Network.Packages {
		out.Network.Packages[i].Name, out.Network.Packages[i].Version = short(p.Name), short(p.Version)
	}
	denials := make([]facts.Denial, len(out.Denials))
	for i, d := range out.Denials {
		denials[i] = facts.Denial{Kind: short(d.Kind), What: short(d.What), Errno: short(d.Errno)}
	}
	out.Denials = denials
	return out
}
