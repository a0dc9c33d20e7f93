// Package contract holds the values of waldo.yaml: the operator's text for each capability and server, its patterns
// and its hosts. The zero value of each permits nothing. Package config reads the file.
package contract

import (
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/model/secret"
)

// Position is a place in a configuration file.
type Position struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1
	Column int    `json:"column,omitempty"` // from 1, in characters
}

// Beside makes a path of the file absolute: a relative path starts at the file's folder, not at the working
// directory.
func (p Position) Beside(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Abs(filepath.Join(filepath.Dir(p.File), path))
}

// Transport is how a capability is reached.
type Transport string

// The transports. The empty one reaches nothing.
const (
	Direct        Transport = "direct"
	MCP           Transport = "mcp"
	SandboxedExec Transport = "sandboxed_exec"
	A2A           Transport = "a2a"
	Held          Transport = "held" // of statements alone; waldo.yaml cannot name it
)

// Mode is the risk class of a capability. The zero value is the strictest.
type Mode uint8

// The risk classes.
const (
	HighRisk Mode = iota
	Write
	Read
)

// String returns the word used in a contract: read, write or high_risk.
func (m Mode) String() string { return [...]string{"high_risk", "write", "read"}[m%3] }

// Danger is the level that a mode implies.
func (m Mode) Danger() int { return [...]int{3, 2, 1}[m%3] }

// MarshalText makes the JSON form the word of String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the word of String; any other word is HighRisk.
func (m *Mode) UnmarshalText(b []byte) error {
	*m = map[string]Mode{"write": Write, "read": Read}[string(b)]
	return nil
}

// Filesystem says what a capability sees of the host's files. The zero value sees nothing.
type Filesystem uint8

// The readings of filesystem.
const (
	NoFiles Filesystem = iota
	WorkspaceOnly
)

// Condition is a CEL expression over args, principal, session, environment and capability.
type Condition struct {
	Source string
	At     Position
}

// When says when a human is asked. The zero value asks always.
type When uint8

// The readings of approval.
const (
	Always When = iota
	Never
	If
)

// Approval says when a human is asked and which role may answer.
type Approval struct {
	When      When
	Condition *Condition // with If
	By        string     // a role; empty: any approver
	Need      int        // how many different approvers must say yes; 0 and 1: one
	At        Position
}

// Rule raises the danger of a call by its arguments.
type Rule struct {
	When   Condition
	Danger int    // 1, 2 or 3; it only ever raises
	Deny   bool   // refuse instead
	Reason string // shown to the approver and in the decision
}

// Retry says how often and after which failures a worker may try again.
type Retry struct {
	Max int
	On  []string
}

// The kinds of failure that a contract can have retried.
const (
	Unavailable = "unavailable"
	TimedOut    = "timeout"
)

// After reports whether a call is retried after it timed out, or after its server failed.
func (r Retry) After(timeout bool) bool {
	switch {
	case timeout:
		return slices.Contains(r.On, TimedOut)
	case len(r.On) == 0:
		return r.Max > 0
	}
	return slices.Contains(r.On, Unavailable)
}

// Rate is at most Calls calls in any window of Per. The zero value sets no limit.
type Rate struct {
	Calls int
	Per   time.Duration
}

// Idempotency is how long a key is remembered, and which argument carries it to the tool.
type Idempotency struct {
	Argument string        // empty: the tool takes none
	Window   time.Duration // 0: DefaultWindow
}

// DefaultWindow is how long a key is remembered without a window.
const DefaultWindow = 24 * time.Hour

// Settle is the read that finds out whether a write with an unknown outcome happened. The zero value finds nothing.
type Settle struct {
	By       string         // the capability that reads
	Args     map[string]any // a text is a CEL expression over args
	Happened string         // a CEL expression over args, result and text, which is true or false
	Within   time.Duration
	At       Position
}

// Rollback is the call that undoes another. The zero value undoes nothing.
type Rollback struct {
	By   string         // the capability that undoes
	Args map[string]any // a text is a CEL expression over args, result and text
	At   Position
}

// Example is one row of a contract's examples, checked when the contract is loaded.
type Example struct {
	Capability string // the name that is called
	Args       map[string]any
	Expect     string // allow, ask or deny, on a machine that has everything
	At         Position
}

// Contract is the operator's text for one capability, read and completed.
type Contract struct {
	Pattern        string // as written: github.create_*
	At             Position
	Transport      Transport // empty: told by the capability's name (Resolve)
	Mode           Mode
	Danger         int    // 1, 2 or 3; never below what the mode implies
	Isolation      string // the level to use, never "auto"
	Server         string // upstream it belongs to
	Tool           string // the upstream's own name for it; empty: the capability's last part
	Network        Network
	Filesystem     Filesystem
	Template       string                // root of its sandbox; empty: the host's /usr
	Run            Limits                // of its sandbox
	Input          string                // a host folder shown read-only as /workspace/input
	Mounts         []Mount               // files and folders of this machine that its sandbox sees, by target
	Protect        []string              // patterns of names in its writable mounts that are read-only too
	Unprotect      []string              // patterns of the table of protected names that do not hold
	Env            map[string]string     // of its sandbox
	Root           string                // of the files tool
	Programs       []string              // of the cli tool
	Database       string                // of the sql tools: a secret with its URL, or sqlite:PATH
	Secrets        map[string]secret.Ref // variable or slot to secret
	Reveal         []string              // variables of Secrets that hold the secret itself in the sandbox
	Environments   []string              // empty: every environment
	Tenants        []string              `json:",omitempty"` // that can use it; empty: none
	Timeout        time.Duration
	Retry          Retry
	RateLimit      Rate
	Concurrency    int // 0: no limit
	ResponseBudget int // bytes
	Approval       Approval
	Confirm        bool // the call is previewed first, and made again with the token of its preview
	Hold           bool `json:",omitempty"` // the writes of its program are collected, for one approval at its end
	Witness        bool `json:",omitempty"` // the witnesses of log.policy cosign the log before a call acts
	Rules          []Rule
	Log            string
	Redact         []string // of detect.Classes
	Idempotency    Idempotency
	Settle         Settle
	Rollback       Rollback
	Trust          string
	Examples       []Example
	Keys           map[string]Position // where each key that was written stands
	Channel        string              `json:",omitempty"` // the only channel that may call it; empty: every one
	BuiltIn        bool                // waldo's defaults, used without a file
	Denied         bool                // NAME: deny; every call is denied
	Expose         bool                // agents elsewhere may call it over A2A
}

// Config is one waldo.yaml, read, checked and completed.
type Config struct {
	File   string
	Digest string // SHA-256 of the file's bytes, "sha256:…"; empty without a file
	// Programs are the digests of the programs that waldo trust recorded. The configuration holds as it was trusted
	// alone. nil: the operator named it and vouches for what it runs.
	Programs    map[string]string
	Environment string
	Places      map[string]string // where each path that it opens led when it was loaded or trusted
	Servers     map[string]Server
	Secrets     map[string]Secret
	SecretUses  []SecretUse
	Contracts   []Contract                // in the order of the file
	Rules       []Rule                    // of every contract, behind its own
	Internal    []string                  // hosts that internal_only stands for
	Addresses   map[string][]netip.Prefix // host to where it stands, and nowhere else
	Webhooks    map[string]Webhook
	Redaction   Redaction
	Approval    Approvals
	Gateway     Gateway
	Sandboxes   Sandboxes
	Sessions    Sessions
	Log         Log
	Blobs       Blobs
	Agent       Agent
	Telemetry   Telemetry
	Store       string // sqlite or the URL of a PostgreSQL database; empty: that of the state directory
	StoreAt     Position
	StoreKey    secret.Ref // of the marks of rows that hosts share; empty: that of the workers, or none
	Workers     *Workers   // nil: each run is carried out by the waldo that decided it
	Warnings    []Problem
}

// Telemetry names the collector of traces and metrics; empty: the environment can name one.
type Telemetry struct{ OTLP string }

// Sandboxes bound the runs that are live at a time in one waldo process. Zero fields: the defaults.
type Sandboxes struct {
	MemoryPercent int           // of this machine's memory, for the sum of their limits
	PerPrincipal  int           // runs
	Wait          time.Duration // for room
}

// Sessions are the budgets of each session. Zero fields: the defaults.
type Sessions struct {
	Calls          int // over its whole life
	CallsPerSecond int // that its programs begin
	Depth          int // runs inside runs
	DataMB         int // of arguments and results, in MiB
	RunSeconds     int // that the agent's own calls take together
}

// Log is the retention of audit records, and who witnesses them. The zero value keeps all, without witnesses.
type Log struct {
	Keep   time.Duration
	Policy string // the absolute path of the file that names the witnesses; empty: none
	// Accepted is the digest of that file: as it was trusted, or as a named configuration found it. It holds alone.
	Accepted string
}

// Blobs names the bucket that gets a copy of the log. The zero value: none.
type Blobs struct {
	URL                string // file:///FOLDER or s3://BUCKET/PREFIX
	Endpoint           string // of an S3 API that is not Amazon's; empty: Amazon's own
	Region             string
	Key, Secret, Token secret.Ref // the key's id, the key, and the token of a temporary one
}

// Workers names the key of the queue whose runs other machines carry out.
type Workers struct {
	Key  secret.Ref
	Wait time.Duration // of a run, for a worker
	At   Position
}

// Redaction says what is hidden from the model.
type Redaction struct {
	Model  []string // of detect.Classes
	Tokens bool     // tokenise personal data instead of masking it
}

// Elicitation is the approval carrier of the agent's own host: the host's claim of its person's answer is accepted as
// the answer. No approver's key signs it.
const Elicitation = "elicitation"

// OverA2A is the approval carrier of agents elsewhere: a question travels to the caller of its task, and comes back as an
// answer that an approver signed.
const OverA2A = "a2a"

// Approvals holds the approvers, and how long an approval waits.
type Approvals struct {
	Timeout  time.Duration
	Roles    map[string][]string // role to principals
	People   map[string][]string // approver to the principals that are the same person
	Carriers []string
	Root     string // fingerprint of the first approver; empty: the first in the log

	Notify          []string // a command that is run for each question; empty: none
	NotifyArguments bool     // it is given the arguments of the call
	Trust           string   // of Notify: Uncovered, or empty
	Webhooks        []ApprovalWebhook
}

// ApprovalWebhook is one address that hears of each question.
type ApprovalWebhook struct {
	URL     secret.Ref // the address, which often holds a token
	Format  string     // json, slack, teams or ntfy
	Key     secret.Ref // signs the message; empty: unsigned
	Console string     // the address of the console, for a link; empty: none
}
