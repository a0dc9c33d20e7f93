package site

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
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
	Peer      string // of a login: the user of this machine who made the connection; empty: another machine
}

// Backend carries out the requests of the console. Errors of kind *Problem reach the client; any other is logged.
type Backend interface {
	// Audit records an action of the console. Its error stops the action.
	Audit(ctx context.Context, who Who, e Event) error
	// UseLink spends a one-time login link and returns the role that it gives.
	UseLink(ctx context.Context, who Who, token string) (Role, error)

	// LoginBegin asks for the signature of a passkey under a login.
	LoginBegin(ctx context.Context, who Who, name string) (Ceremony, error)
	// LoginFinish takes it, and returns who logs in.
	LoginFinish(ctx context.Context, who Who, draft string, assertion json.RawMessage) (call.Principal, Role, error)
	// Role returns the role that a login by passkey has now; RoleNone: it has ended.
	Role(ctx context.Context, who call.Principal) (Role, error)

	// Here returns where the console is.
	Here(ctx context.Context) (Here, error)
	// Recent returns the records of interest to an operator, the newest first: denials, answers, changes, orders.
	Recent(ctx context.Context) ([]Record, error)

	Approvals(ctx context.Context, p Page) (List[Approval], error)
	// Answered returns questions that do not wait any more, the newest first.
	Answered(ctx context.Context, p Page) (List[Answered], error)
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
	Agent(ctx context.Context, session string) (Agent, error)
	Stop(ctx context.Context, who Who, name string, release bool) error
	Sandboxes(ctx context.Context) (List[Sandbox], error)
	SandboxAct(ctx context.Context, who Who, name, act string) error
	Upstreams(ctx context.Context) (List[Upstream], error)
	Upstream(ctx context.Context, name string) (UpstreamLife, error)
	// Restart ends a server of this process. The next call starts it anew.
	Restart(ctx context.Context, name string) error
	// Egress sums up the attempts to reach another machine, the refused first, then the newest first.
	Egress(ctx context.Context, f EgressFilter) (List[Egress], error)
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
	// Unsettled returns the calls with an unknown outcome, oldest first.
	Unsettled(ctx context.Context) (List[Unsettled], error)
	Records(ctx context.Context, f RecordFilter, p Page) (List[Record], error)
	Verify(ctx context.Context) (json.RawMessage, error)
	// Usage counts the calls of the last hours by capability, or by agent.
	Usage(ctx context.Context, hours int, byAgent bool) (List[Usage], error)
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

// Here is where the console is, for the head of each page.
type Here struct {
	Machine     string    `json:"machine"`
	Environment string    `json:"environment,omitempty"`
	Config      string    `json:"config,omitempty"` // path; empty: none
	Since       time.Time `json:"since"`            // when this process read it
	Open        int       `json:"open"`             // questions that wait
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
	Rows       []Row         `json:"rows,omitempty"` // of one question: the held calls of a program, in order
	Compared   *Compared     `json:"compared,omitempty"`
	Digest     string        `json:"digest"` // of all of the question; an answer names it
	Contract   string        `json:"contract"`
	Policy     string        `json:"policy"`
	Decision   string        `json:"decision_id"`
	Created    time.Time     `json:"created"`
	Expires    time.Time     `json:"expires"`
	Asker      *Call         `json:"call,omitempty"` // the newest that asked it; nil: too old
	Answers    []Answer      `json:"answers,omitempty"`
	Peer       string        `json:"peer,omitempty"`    // that passed on a question of another waldo
	Root       string        `json:"root,omitempty"`    // the first approver of that waldo, by fingerprint
	Refused    string        `json:"refused,omitempty"` // why that waldo did not take the last answer
}

// Answered is a question that does not wait any more. Without answers, nobody gave one in time.
type Answered struct {
	Call
	Answers []Answer `json:"answers"`
	WaitMS  float64  `json:"wait_ms"` // from the call to the last answer; 0: not known
}

// Answering is an answer to prepare.
type Answering struct {
	Yes    bool   `json:"-"`
	As     string `json:"as"`
	Digest string `json:"digest"`
	Reason string `json:"reason"`
	Word   string `json:"word,omitempty"`   // for a yes to danger 3: the last word of the capability's name
	Struck []int  `json:"struck,omitempty"` // with a yes to held calls: the numbers of the rows that it strikes out
}

// Row is one held call of a question.
type Row struct {
	Number  int      `json:"number"` // from 1
	Title   string   `json:"title"`
	Preview []string `json:"preview,omitempty"`
	Fields  []Field  `json:"fields,omitempty"`
	Struck  bool     `json:"struck,omitempty"` // by the yes before
	// Of a call that was made after the yes:
	CallID string `json:"call_id,omitempty"`
	Result string `json:"result,omitempty"`  // as of a call; "unknown": whether it took effect is not known
	UndoBy string `json:"undo_by,omitempty"` // the capability that waldo undo would call
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

// CallFilter selects calls. An empty field selects all. Agent and Text select by a part of a value.
type CallFilter struct {
	Capability, Principal, Effect, Status, Session, Result, Agent, Text string
	Since, Until                                                        time.Time
}

// Call is one call in short.
type Call struct {
	ID         string  `json:"id"`
	Seq        uint64  `json:"seq"`
	At         string  `json:"at"`
	Capability string  `json:"capability"`
	Gist       string  `json:"gist"` // the start of the redacted arguments
	Principal  string  `json:"principal"`
	Agent      string  `json:"agent,omitempty"`  // as the agent host calls itself; it proves nothing
	Folder     string  `json:"folder,omitempty"` // of the process that the session ends with
	Session    string  `json:"session"`
	Channel    string  `json:"channel"`
	Parent     string  `json:"parent,omitempty"`
	Mode       string  `json:"mode"`
	Danger     int     `json:"danger"`
	Effect     string  `json:"effect"`
	Status     string  `json:"status,omitempty"` // empty: under way
	Result     string  `json:"result"`           // the last word, one of Results
	Because    string  `json:"because"`          // of a call that is not done
	WallMS     float64 `json:"wall_ms"`
	CPUMS      float64 `json:"cpu_ms"`
	Decision   string  `json:"decision_id"`
	Approval   string  `json:"approval_id,omitempty"`
}

// The results of a call.
const (
	Running   = "running"
	Done      = "done"
	WaitsFor  = "waiting"  // for an answer
	Approved  = "approved" // and not repeated yet
	DeniedBy  = "denied"   // by a contract or a person
	Failed    = "failed"
	Timeout   = "timeout"
	OOM       = "no memory"
	Cancelled = "cancelled"
	NoAnswer  = "no answer" // the question ended without one
	Lost      = "lost"      // the process ended before the call did
)

// Results are the results of calls, for filters.
var Results = []string{Done, WaitsFor, Approved, DeniedBy, Failed, Timeout, OOM, Cancelled, NoAnswer, Running, Lost}

// Because returns the reason to name, in words: the first one that is not of the class of the call.
func Because(all []call.Reason) string {
	for _, r := range all {
		if !strings.HasPrefix(r.Code, "mode.") {
			return cmp.Or(r.Cause, r.Text, r.Code)
		}
	}
	if len(all) > 0 {
		return cmp.Or(all[0].Text, all[0].Code)
	}
	return ""
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
	ArgsSize   *audit.Sized    `json:"args_size,omitempty"` // of arguments that the log does not hold
	Run        json.RawMessage `json:"run,omitempty"`
	Answers    []Answer        `json:"answers"`
	Why        []call.Reason   `json:"why"` // it ended so, beside the reasons of the decision
	SideEffect string          `json:"side_effect,omitempty"`
	Shown      *audit.Sized    `json:"shown,omitempty"` // to the agent
	Facts      json.RawMessage `json:"facts,omitempty"`
	Children   []Call          `json:"children"`
	Records    []Record        `json:"records"`
}

// Answer is a human's answer, or waldo's refusal in its place.
type Answer struct {
	By      string   `json:"by"`
	Also    []string `json:"also,omitempty"`
	Yes     bool     `json:"yes"`
	Passkey bool     `json:"passkey"`
	Refusal string   `json:"refusal,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Struck  []int    `json:"struck,omitempty"` // the rows of held calls that the answer struck out
	At      string   `json:"at,omitempty"`
}

// Agent is one session of an agent.
type Agent struct {
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Agent     string `json:"agent,omitempty"`
	Folder    string `json:"folder,omitempty"`
	State     string `json:"state"` // running, idle, ended, stopped
	Channel   string `json:"channel"`
	First     string `json:"first"`
	Last      string `json:"last"`
	Calls     int    `json:"calls"`
	Denied    int    `json:"denied"`
	Failed    int    `json:"failed"`
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
	Failures  int    `json:"failures,omitempty"`   // in a row, with an open circuit breaker
	OpenUntil string `json:"open_until,omitempty"` // from when a read tries the server; empty: no breaker is open
}

// UpstreamLife is all that the page of one server shows.
type UpstreamLife struct {
	Upstream
	Definitions []Definition `json:"definitions"`
	Pins        []Pin        `json:"pins"`   // of the last look; a look starts each server
	Looked      bool         `json:"looked"` // there was a look in this process
	Faults      []Call       `json:"faults"` // the newest
	Egress      []Egress     `json:"egress"`
	Restarts    bool         `json:"restarts"` // this process has it for agents, so that it can be restarted here
}

// Definition is one accepted tool of a server, with its contract and its calls in the last day.
type Definition struct {
	Usage
	Mode     string `json:"mode,omitempty"`
	Danger   int    `json:"danger,omitempty"`
	Approval string `json:"approval"` // denied; or when a human is asked
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// EgressFilter selects attempts. An empty field selects all; Result is that of an attempt, and Text selects by a part
// of the host, server or capability.
type EgressFilter struct{ Text, Result, Server string }

// Egress sums up the attempts at one host by one server, or by the calls of one capability.
type Egress struct {
	facts.Attempt
	By     string `json:"by"` // a server, or a capability
	Server bool   `json:"server"`
	Agent  string `json:"agent,omitempty"`   // of the last
	Call   string `json:"call_id,omitempty"` // the last
	Last   string `json:"last"`
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

// Unsettled is a call with an unknown outcome, for waldo settle.
type Unsettled struct {
	CallID     string `json:"call_id"`
	Capability string `json:"capability"`
	Principal  string `json:"principal"`
	At         string `json:"at"`
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

// RecordFilter selects records of the log. An empty field selects all. Without is a kind that is left out.
type RecordFilter struct{ Kind, Without, Text, ID string }

// Record is one record of the log.
type Record struct {
	Seq  uint64          `json:"seq"`
	ID   string          `json:"id"`
	At   string          `json:"at"`
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body"`
	Hash string          `json:"hash"`
}

// Usage counts the calls of one capability, or of one agent.
type Usage struct {
	Capability string  `json:"capability,omitempty"`
	Agent      string  `json:"agent,omitempty"`
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
