package console

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"waldo/internal/model/call"
)

// Role is the right of a login. The zero Role allows nothing; each role includes those before it.
type Role int

// The roles.
const (
	RoleNone     Role = iota
	RoleViewer        // looks
	RoleApprover      // answers questions; every answer needs a passkey's signature besides
	RoleOperator      // pauses, stops, releases
)

var roleNames = []string{"none", "viewer", "approver", "operator"}

func (r Role) String() string {
	if r < 0 || int(r) >= len(roleNames) {
		return "none"
	}
	return roleNames[r]
}

// ParseRole returns the role of a name, or RoleNone.
func ParseRole(name string) Role {
	for i, n := range roleNames {
		if n == name {
			return Role(i)
		}
	}
	return RoleNone
}

// Who acts through the console.
type Who struct {
	Principal call.Principal
	Role      Role
	Session   string // of the console; a draft belongs to one
	Origin    string // of the page, as the browser sees it
}

// Backend carries out the requests of the console. Errors of kind *Problem reach the client; any other is logged.
type Backend interface {
	// Audit records an action of the console. Its error stops the action.
	Audit(ctx context.Context, who Who, e Event) error
	// UseLink spends a one-time login link and returns the role that it gives.
	UseLink(ctx context.Context, token string) (Role, error)

	// LoginBegin asks for the signature of a passkey under a login.
	LoginBegin(ctx context.Context, who Who, name string) (Ceremony, error)
	// LoginFinish takes it, and returns who logs in.
	LoginFinish(ctx context.Context, who Who, draft string, assertion json.RawMessage) (call.Principal, Role, error)
	// Role returns the role that a login by passkey has now; RoleNone: it has ended.
	Role(ctx context.Context, who call.Principal) (Role, error)

	Approvals(ctx context.Context, p Page) (List[Approval], error)
	Approval(ctx context.Context, id string) (Approval, error)
	// Draft prepares an answer to the question with a digest. The challenge of the options is the digest of the answer.
	Draft(ctx context.Context, who Who, id string, a Answering) (Ceremony, error)
	// Settle takes a drafted answer, approve or deny, with the passkey's assertion.
	Settle(ctx context.Context, who Who, id, verdict, draft string, assertion json.RawMessage) error

	// Invited begins the enrolment of a passkey with the secret that a terminal printed.
	Invited(ctx context.Context, who Who, secret string) (Ceremony, error)
	// Register takes the new credential and asks for a first signature with it.
	Register(ctx context.Context, who Who, draft string, credential json.RawMessage) (Ceremony, error)
	// Enrol hands the signed enrolment to the terminal, which decides.
	Enrol(ctx context.Context, who Who, draft string, assertion json.RawMessage) error
	// RootBegin asks for the first approver's signature under an enrolment that a browser has signed.
	RootBegin(ctx context.Context, who Who, secret string) (Ceremony, error)
	// RootSign hands that signature to the terminal.
	RootSign(ctx context.Context, who Who, draft string, assertion json.RawMessage) error
	Approvers(ctx context.Context) (List[Approver], error)

	Calls(ctx context.Context, f CallFilter, p Page) (List[Call], error)
	Call(ctx context.Context, id string) (CallLife, error)
	Agents(ctx context.Context, p Page) (List[Agent], error)
	Stop(ctx context.Context, who Who, name string, release bool) error
	Sandboxes(ctx context.Context) (List[Sandbox], error)
	SandboxAct(ctx context.Context, who Who, name, act string) error
	Upstreams(ctx context.Context) (List[Upstream], error)
	Webhooks(ctx context.Context) (List[Webhook], error)
	// Deliveries lists webhooks that are not done, oldest first: those of a state, or all with an empty one.
	Deliveries(ctx context.Context, state string, p Page) (List[Delivery], error)
	// DeliveryAct makes a webhook due now (retry), or removes it (drop).
	DeliveryAct(ctx context.Context, who Who, id, act string) error
	Contracts(ctx context.Context) (List[Contract], error)
	DryRun(ctx context.Context, who Who, d DryRun) (Decision, error)
	// Current returns the text of the configuration in force; empty where it cannot be shown.
	Current(ctx context.Context) (string, error)
	// WhatIf compares the decisions on the last day's calls with those of a changed configuration.
	WhatIf(ctx context.Context, text string) (WhatIf, error)
	Pins(ctx context.Context) (List[Pin], error)
	Records(ctx context.Context, f RecordFilter, p Page) (List[Record], error)
	Verify(ctx context.Context) (json.RawMessage, error)
	Usage(ctx context.Context) (List[Usage], error)
	// Hours counts the calls of the last span hours, the oldest first, in steps of some hours.
	Hours(ctx context.Context, span, step int) (List[Hour], error)
	// Live returns events after a number, and then new ones until ctx ends. Reset is true if earlier ones are lost.
	Live(ctx context.Context, after uint64) (events <-chan LiveEvent, reset bool, err error)
}

// Problem is an error that the client is shown, as application/problem+json (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Type   string `json:"type"`
}

func (p *Problem) Error() string { return p.Detail + " (" + p.Code + ")" }

// Problemf returns a problem.
func Problemf(status int, code, format string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Page asks for part of a list.
type Page struct {
	Limit  int
	Cursor string
}

// List is part of a list. An empty Next ends it.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next_cursor,omitempty"`
	Total int    `json:"total,omitempty"` // where it is known
}

// Event is an action of the console, as the log has it.
type Event struct {
	Action string `json:"action"` // login, approve, sandbox.pause
	Target string `json:"target,omitempty"`
	Result string `json:"result"` // begun, done, refused
	Why    string `json:"why,omitempty"`
}

// LiveEvent is one event of the live stream.
type LiveEvent struct {
	Seq  uint64          `json:"seq"`
	Kind string          `json:"kind"` // the record's kind; approvals: the inbox changed
	Data json.RawMessage `json:"data"`
}

// Field is one value of the arguments, escaped for one line.
type Field struct {
	Path    string `json:"path"`
	Value   string `json:"value"`
	Note    string `json:"note,omitempty"`
	Before  string `json:"before,omitempty"` // its value in the last approved call
	Changed string `json:"changed,omitempty"`
}

// The values of Field.Changed.
const (
	Added   = "added"
	Removed = "removed"
	Differs = "changed"
)

// Compared names the approved call that a question is compared with.
type Compared struct {
	ID string   `json:"id"`
	At string   `json:"at"`
	By []string `json:"by"`
}

// Approval is one question.
type Approval struct {
	ID         string        `json:"id"`
	State      string        `json:"state"`
	Capability string        `json:"capability"`
	Principal  string        `json:"principal"`
	Session    string        `json:"session"`
	Channel    string        `json:"channel"`
	Mode       string        `json:"mode"`
	Danger     int           `json:"danger"`
	Role       string        `json:"role,omitempty"`
	Need       int           `json:"need"`
	Given      []string      `json:"given"`
	Reasons    []call.Reason `json:"reasons"`
	Notes      []string      `json:"notes"`
	Preview    []string      `json:"preview,omitempty"` // of one question: what the call would do, line by line
	ArgsDigest string        `json:"args_digest"`
	ArgsBytes  int           `json:"args_bytes"`
	Fields     []Field       `json:"fields,omitempty"`
	Compared   *Compared     `json:"compared,omitempty"`
	Digest     string        `json:"digest"` // of all of the question; an answer names it
	Contract   string        `json:"contract"`
	Policy     string        `json:"policy"`
	Decision   string        `json:"decision_id"`
	Created    time.Time     `json:"created"`
	Expires    time.Time     `json:"expires"`
}

// Answering is an answer to prepare.
type Answering struct {
	Yes    bool   `json:"-"`
	As     string `json:"as"`
	Digest string `json:"digest"`
	Reason string `json:"reason"`
}

// Ceremony asks the browser for a passkey's signature. Options go to navigator.credentials.
type Ceremony struct {
	Draft   string          `json:"draft"`
	Name    string          `json:"name,omitempty"`
	Options json.RawMessage `json:"options"`
}

// Approver is a person who can answer.
type Approver struct {
	Name        string   `json:"name"`
	Fingerprint string   `json:"fingerprint"`
	Passkey     bool     `json:"passkey"`
	Origin      string   `json:"origin,omitempty"`
	Roles       []string `json:"roles"`
	Root        bool     `json:"root"`
}

// CallFilter selects calls. An empty field selects all.
type CallFilter struct{ Capability, Principal, Effect, Status, Session string }

// Call is one call in short.
type Call struct {
	ID         string  `json:"id"`
	Seq        uint64  `json:"seq"`
	At         string  `json:"at"`
	Capability string  `json:"capability"`
	Principal  string  `json:"principal"`
	Session    string  `json:"session"`
	Channel    string  `json:"channel"`
	Parent     string  `json:"parent,omitempty"`
	Mode       string  `json:"mode"`
	Danger     int     `json:"danger"`
	Effect     string  `json:"effect"`
	Status     string  `json:"status,omitempty"` // empty: under way
	WallMS     float64 `json:"wall_ms"`
	CPUMS      float64 `json:"cpu_ms"`
	Decision   string  `json:"decision_id"`
	Approval   string  `json:"approval_id,omitempty"`
}

// CallLife is all that the log knows of one call.
type CallLife struct {
	Call
	Reasons    []call.Reason   `json:"reasons"`
	Lines      []string        `json:"lines"` // for each reason the line of the contract; empty: not known, or as before
	Pattern    string          `json:"pattern,omitempty"`
	File       string          `json:"file,omitempty"`
	Line       int             `json:"line,omitempty"`
	Secrets    []string        `json:"secrets"`
	Args       json.RawMessage `json:"args"` // redacted
	ArgsDigest string          `json:"args_digest,omitempty"`
	ArgsSize   *Sized          `json:"args_size,omitempty"` // of arguments that the log does not hold
	Run        json.RawMessage `json:"run,omitempty"`
	Answers    []Answer        `json:"answers"`
	Why        []call.Reason   `json:"why"` // it ended so, beside the reasons of the decision
	SideEffect string          `json:"side_effect,omitempty"`
	Result     *Sized          `json:"result,omitempty"`
	Facts      json.RawMessage `json:"facts,omitempty"`
	Children   []Call          `json:"children"`
	Records    []Record        `json:"records"`
}

// Sized replaces a text that the log does not hold.
type Sized struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Answer is a human's answer, or waldo's refusal in its place.
type Answer struct {
	By      string   `json:"by"`
	Also    []string `json:"also,omitempty"`
	Yes     bool     `json:"yes"`
	Passkey bool     `json:"passkey"`
	Refusal string   `json:"refusal,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	At      string   `json:"at,omitempty"`
}

// Agent is one session of an agent.
type Agent struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Channel   string `json:"channel"`
	First     string `json:"first"`
	Last      string `json:"last"`
	Calls     int    `json:"calls"`
	Denied    int    `json:"denied"`
	Waiting   int    `json:"waiting"`
}

// Sandbox is one named sandbox.
type Sandbox struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Isolation string    `json:"isolation"`
	Template  string    `json:"template"`
	Running   int       `json:"running"`
	Runs      int       `json:"runs"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used"`
}

// Upstream is one server of the configuration.
type Upstream struct {
	Name      string `json:"name"`
	Placement string `json:"placement"`
	Target    string `json:"target"` // its command or URL
	Tools     int    `json:"tools"`  // accepted
	Health    string `json:"health"` // ok, failing, unused
	LastOK    string `json:"last_ok,omitempty"`
	LastFault string `json:"last_fault,omitempty"`
	Why       string `json:"why,omitempty"`
}

// Contract is one entry of the configuration.
type Contract struct {
	Pattern   string `json:"pattern"`
	Denied    bool   `json:"denied"`
	BuiltIn   bool   `json:"built_in"`
	Server    string `json:"server,omitempty"`
	Transport string `json:"transport,omitempty"`
	Mode      string `json:"mode,omitempty"`
	Danger    int    `json:"danger,omitempty"`
	Isolation string `json:"isolation,omitempty"`
	Network   string `json:"network,omitempty"`
	Approval  string `json:"approval,omitempty"`
	Rules     int    `json:"rules,omitempty"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Text      string `json:"text,omitempty"` // as written, unless the file has changed
}

// DryRun is a call to decide and not to make.
type DryRun struct {
	Capability string          `json:"capability"`
	Args       json.RawMessage `json:"args"`
	Principal  string          `json:"principal,omitempty"` // empty: the user of this waldo
	Channel    string          `json:"channel,omitempty"`   // empty: cli
}

// Decision is the decision of a dry run.
type Decision struct {
	Effect  string        `json:"effect"`
	Reasons []call.Reason `json:"reasons"`
	Mode    string        `json:"mode"`
	Danger  int           `json:"danger"`
	Pattern string        `json:"pattern,omitempty"`
	File    string        `json:"file,omitempty"`
	Line    int           `json:"line,omitempty"`
	Role    string        `json:"role,omitempty"`
	Need    int           `json:"need"`
	Lines   []string      `json:"lines"` // for each reason the line of the contract; empty: not known, or as before
}

// WhatIf says which of the last day's calls a changed configuration would decide otherwise.
type WhatIf struct {
	Problems []string   `json:"problems"` // of the changed text; with any, nothing was compared
	Since    time.Time  `json:"since"`
	Calls    int        `json:"calls"` // looked at, the newest
	Total    int        `json:"total_calls"`
	Same     int        `json:"same"`
	Differ   int        `json:"differ"`
	Unknown  int        `json:"unknown"`
	Older    int        `json:"recorded_otherwise"` // then decided otherwise than the configuration in force does
	Changes  []Change   `json:"changes"`
	Unjudged []Unjudged `json:"unjudged"`
}

// Change is a group of calls that would be decided otherwise.
type Change struct {
	Capability string        `json:"capability"`
	Now        string        `json:"now"`
	Then       string        `json:"then"`
	Count      int           `json:"count"`
	Examples   []string      `json:"examples"` // ids of the newest calls
	Reasons    []call.Reason `json:"reasons"`  // of the changed configuration
}

// Unjudged are calls that cannot be compared.
type Unjudged struct {
	Capability string   `json:"capability"`
	Count      int      `json:"count"`
	Why        string   `json:"why"`
	Fields     []string `json:"fields"`   // redacted arguments that a condition read, as args.order
	Examples   []string `json:"examples"` // ids of the newest calls
}

// Pin is a definition that waits to be accepted.
type Pin struct {
	Server string   `json:"server"`
	Name   string   `json:"name"` // of the tool, prompt or template; else of the server
	Code   string   `json:"code"`
	Text   string   `json:"text"`
	Diff   []string `json:"diff,omitempty"` // "-" before an accepted value, "+" before a declared one
}

// Lines are the lines of the difference with a class each: removed, added or none.
func (p Pin) Lines() (all []struct{ Class, Text string }) {
	for _, l := range p.Diff {
		class := ""
		switch {
		case strings.HasPrefix(l, "-"):
			class = Removed
		case strings.HasPrefix(l, "+"):
			class = Added
		}
		all = append(all, struct{ Class, Text string }{class, l})
	}
	return all
}

// RecordFilter selects records of the log. An empty field selects all.
type RecordFilter struct{ Kind, Text, ID string }

// Record is one record of the log.
type Record struct {
	Seq  uint64          `json:"seq"`
	ID   string          `json:"id"`
	At   string          `json:"at"`
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body"`
	Hash string          `json:"hash"`
}

// Usage counts the calls of one capability.
type Usage struct {
	Capability string  `json:"capability"`
	Calls      int     `json:"calls"`
	Denied     int     `json:"denied"`
	Asked      int     `json:"asked"`
	Failed     int     `json:"failed"`
	WallMS     float64 `json:"wall_ms"`
	CPUMS      float64 `json:"cpu_ms"`
	P50MS      float64 `json:"p50_ms"`
	P95MS      float64 `json:"p95_ms"`
}

// Hour counts the calls of one hour, or of several from Start on.
type Hour struct {
	Start   time.Time `json:"start"`
	Calls   int       `json:"calls"`
	Denied  int       `json:"denied"` // by a contract
	Asked   int       `json:"asked"`
	Refused int       `json:"refused"` // after the decision: by a human, a budget, a stop
	Failed  int       `json:"failed"`
	WallMS  float64   `json:"wall_ms"`
	CPUMS   float64   `json:"cpu_ms"`
	P50MS   float64   `json:"p50_ms"` // at most 19 % too high
	P95MS   float64   `json:"p95_ms"`
}

// CPUSeconds is CPUMS in seconds.
func (u Usage) CPUSeconds() float64 { return u.CPUMS / 1000 }
