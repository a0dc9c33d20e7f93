// Package call holds a call as it was asked, as it came back and as it is shown to the agent.
package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// Capability is the name of something an agent may ask for: "helpdesk.create_ticket",
// "run_python". It is a type so that it cannot change places with a session id.
type Capability string

// Launch is the capability of a session of an agent host, and the channel that alone may call it.
const Launch = "launch"

// RunsScript reports whether a capability runs code that can call tools.
func RunsScript(c Capability) bool {
	return c == "run_python" || c == "run_javascript" || c == "run_typescript"
}

// A2A is the channel of agents elsewhere.
const A2A = "a2a"

// Wire returns the name as MCP hosts see it: the dots become "__".
func (c Capability) Wire() string { return strings.ReplaceAll(string(c), ".", "__") }

// Word returns the last word of the name, which a person types to approve the most dangerous calls.
func (c Capability) Word() string { return string(c)[strings.LastIndexByte(string(c), '.')+1:] }

// Named reports whether c has the form of a capability's name: 1 to 200 letters, digits, "_", "-" and ".", which does
// not begin with a ".". A tool of that name alone is called.
func (c Capability) Named() bool {
	other := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' || r == '-')
	}
	return len(c) >= 1 && len(c) <= 200 && c[0] != '.' && !strings.ContainsFunc(string(c), other)
}

// TwoKeys stands for the idempotency keys of a request that gives several. No key has such bytes, so it is refused.
const TwoKeys = "\x00\x00"

// KeyOf returns the idempotency key of a request that gives these; empty: it gives none. Several are refused, and so is
// an empty one, as of an unset variable: without a key the call would be made twice.
func KeyOf(given ...string) string {
	switch {
	case len(given) == 0:
		return ""
	case len(given) > 1:
		return TwoKeys
	case given[0] == "":
		return "\x00"
	}
	return given[0]
}

// Principal says on whose behalf a call is made: "os:1000", "token:ci", "oidc:sub". One of a tenant begins with the
// tenant's name: "acme/oidc:sub".
type Principal string

// In returns the principal in a tenant.
func (p Principal) In(tenant string) Principal { return Principal(tenant) + "/" + p.Local() }

// Tenant returns the name of the principal's tenant; empty: it has none.
func (p Principal) Tenant() string {
	tenant, _, ok := strings.Cut(string(p), "/")
	if !ok || strings.Contains(tenant, ":") { // a subject can contain "/", behind its kind
		return ""
	}
	return tenant
}

// Local returns the principal without its tenant.
func (p Principal) Local() Principal {
	if tenant := p.Tenant(); tenant != "" {
		return p[len(tenant)+1:]
	}
	return p
}

// Session is the id of one agent's conversation, "n_…".
type Session string

// Args are the arguments of a call: one JSON object, read strictly and once.
type Args struct {
	v      strictjson.Value
	values map[string]any
	digest func() string // made once, for all the rooms that ask; nil: of the zero Args
}

// MaxArgs is how many bytes of arguments a call may carry.
const MaxArgs = 4 << 20

// ParseArgs reads the arguments of a call. Nothing and null stand for an empty object; anything
// but an object of at most MaxArgs bytes is refused.
func ParseArgs(raw []byte) (Args, error) {
	if s := strings.TrimSpace(string(raw)); s == "" || s == "null" {
		raw = []byte("{}")
	}
	v, err := strictjson.Parse(raw)
	if err != nil {
		return Args{}, fmt.Errorf("arguments: %w", err)
	}
	return ReadArgs(v)
}

// ReadArgs is ParseArgs for an already parsed value, such as a part of a message; the zero Value and null give an
// empty object.
func ReadArgs(v strictjson.Value) (Args, error) {
	if len(v.Raw()) > MaxArgs {
		return Args{}, fmt.Errorf("arguments of %d bytes: at most %d are taken", len(v.Raw()), MaxArgs)
	}
	if v.IsZero() || v.Kind() == 'n' {
		return ParseArgs(nil)
	}
	if v.Kind() != '{' {
		return Args{}, fmt.Errorf("arguments must be a JSON object")
	}
	a := Args{v: v, digest: sync.OnceValue(v.Digest)}
	if err := v.Decode(&a.values); err != nil {
		return Args{}, fmt.Errorf("arguments: %w", err)
	}
	return a, nil
}

// ArgsOf makes arguments from a value that encodes to a JSON object.
func ArgsOf(v any) (Args, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Args{}, err
	}
	return ParseArgs(b)
}

// Raw returns the bytes as received, "{}" for the zero Args. The caller must not change them.
func (a Args) Raw() []byte {
	if a.v.IsZero() {
		return []byte("{}")
	}
	return a.v.Raw()
}

// Values returns the decoded object; numbers are float64. The caller must not change it.
func (a Args) Values() map[string]any { return a.values }

// Value returns the parsed JSON, the zero Value for the zero Args.
func (a Args) Value() strictjson.Value { return a.v }

// Digest returns the SHA-256 of the canonical form (RFC 8785), as "sha256:…".
func (a Args) Digest() string {
	if a.digest == nil {
		return strictjson.Digest([]byte("{}"))
	}
	return a.digest()
}

// MarshalJSON returns the bytes as received.
func (a Args) MarshalJSON() ([]byte, error) { return a.Raw(), nil }

// Call is one request to use a capability, as it was asked.
type Call struct {
	ID         string     // "c_…"
	Capability Capability // the dotted name
	Args       Args
	Session    Session
	Principal  Principal
	Channel    string // mcp, cli, bridge, webhook, a2a, console
	Agent      string // the name and version that an agent host gives itself; it proves nothing
	Parent     string // the id of the run whose code asked; empty for a call from outside
	Depth      int    // 0 for a call from outside, one more for each run it came through
	ApprovalID string // the approval that an earlier answer named; always verified
	Confirm    string // the token of a preview that the caller quotes; always verified
	Key        string // the caller's idempotency key; empty: none
	Confirms   string // the argument that quotes it; empty: confirm
	// Delegation is the token of a delegation that the caller names. The pipeline verifies it, and takes it off.
	Delegation string
	Proof      Proof // of the client that named it; zero: none
	// Chain are the delegations that the call is made under, the root first. Of a call by a program, they are those of
	// its run; the pipeline looks them up again.
	Chain      []string
	ToolDigest string // digest of the definition that the caller saw; empty without one
	// Annotations are those of the tool, as its server gave them: never believed, they can only tighten a decision.
	Annotations strictjson.Value
	Run         *Run // the operator's restrictions of the sandbox; nil for an agent's call
	Trace       Trace
}

// Turns c into a call of the tool t, as the caller sees it now.
func (c *Call) Of(t Tool) {
	c.Capability, c.ToolDigest, c.Annotations, c.Confirms = t.Capability, t.Digest, t.Annotations, t.Confirm
	members, _ := c.Args.Value().Members()
	quoted, ok := members[t.Confirm]
	if t.Confirm == "" || !ok {
		return
	}
	rest := maps.Clone(members)
	delete(rest, t.Confirm)
	if args, err := ArgsOf(rest); err == nil { // else the argument stays, and fits no tool
		c.Args = args
		if c.Confirm, ok = quoted.Text(); !ok && quoted.Kind() != 'n' {
			c.Confirm = string(quoted.Raw()) // no token: refused as an unknown one
		}
	}
}

// Preview shows what a call would do, if its contract has it made in two phases.
type Preview struct {
	Text  string
	Token string // for the same call, which then acts
}

// Proof says that a request was made by the holder of a key, for one token (RFC 9449). It is verified but for the token.
type Proof struct {
	Key   string // thumbprint (RFC 7638)
	Token string // base64url of the token's SHA-256
}

// Trust says how far content may be believed.
type Trust uint8

// Upstream content is Untrusted until a contract says otherwise.
const (
	Untrusted Trust = iota
	Partial
	Trusted
)

// String returns the word used in JSON: untrusted, partial or trusted.
func (t Trust) String() string { return [...]string{"untrusted", "partial", "trusted"}[t%3] }

// MarshalText makes the JSON form the word of String.
func (t Trust) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Content is one piece of an answer. Type is text, image, audio, resource or resource_link; Text
// holds the text of a text; Raw holds the whole MCP content block of every other type.
type Content struct {
	Type string
	Text string
	Raw  strictjson.Value
}

// Text makes a text content.
func Text(s string) Content { return Content{Type: "text", Text: s} }

// Outcome is a worker's answer. Its content is untrusted.
type Outcome struct {
	Content    []Content
	Structured strictjson.Value // the tool's own structured content, or the zero Value
	IsError    bool             // the tool says that it failed
	Fault      *Fault           // the server's error, where it answered with one
	Trust      Trust
	Answered   bool       // the tool answered, also with its own error; false: it did not, or that is not known
	Peer       bool       // an A2A peer answered, whose files are stored in the workspace
	Refused    *Reason    // why the worker did not begin, or did not go on; nil: it did
	Suspended  *Suspended // a program that waits for a human; nil: none
	ApprovalID string     // the question about the writes of a program that has ended; empty: none
	Facts      facts.Facts
	Undo       *Undo     // what would undo the call; nil: not known
	Held       io.Closer // of waldo's own memory, until the result is made; nil: nothing
}

// Size returns the bytes of the content.
func (o Outcome) Size() int64 {
	n := len(o.Structured.Raw())
	for _, c := range o.Content {
		n += len(c.Text) + len(c.Raw.Raw())
	}
	return int64(n)
}

// Release gives back what the outcome holds.
func (o Outcome) Release() {
	if o.Held != nil {
		_ = o.Held.Close() // a lease, which never fails
	}
}

// Reason is one cause of a decision: a code that checks may match, the words for a person, and
// the line of the contract it comes from.
type Reason struct {
	Code   string `json:"code"` // contract.absent
	Text   string `json:"text,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0: no line
	Column int    `json:"column,omitempty"` // from 1, in characters
	// Cause is what the operator alone reads of it: the log has it, no caller does.
	Cause string `json:"cause,omitempty"`
	// RetryAfter is how many seconds later the same call can succeed; 0: waiting does not help.
	RetryAfter int `json:"retry_after,omitempty"`
}

// In returns the reason with the time after which the same call can succeed, in whole seconds from 1.
func (r Reason) In(d time.Duration) *Reason {
	r.RetryAfter = max(1, int((d+time.Second-1)/time.Second))
	return &r
}

// codeStoreAway is the code of calls that failed, or were refused, because the store could not be reached.
const codeStoreAway = "store.away"

// StoreAway returns the reason of such a call. The same call can succeed after 10 s.
func StoreAway() Reason {
	return Reason{Code: codeStoreAway, Text: "the store of waldo cannot be reached", RetryAfter: 10}
}

// Away reports whether a call failed, or was refused, because the store could not be reached.
func (r Result) Away() bool {
	return slices.ContainsFunc(r.Why, func(w Reason) bool { return w.Code == codeStoreAway })
}

// SessionStopped is the code of the reason against the calls of a session that the operator has ended.
const SessionStopped = "session.stopped"

// The codes of the reasons against calls whose delegation has ended.
const (
	DelegationRevoked = "delegation.revoked"
	DelegationExpired = "delegation.expired"
)

// Ended returns why an allowed call was ended from outside. The other reasons of a call that ran are notes.
func (r Result) Ended() []Reason {
	var out []Reason
	for _, w := range r.Why {
		if w.Code == SessionStopped || w.Code == DelegationRevoked || w.Code == DelegationExpired {
			out = append(out, w)
		}
	}
	return out
}

// Cause returns the reasons for the caller of a call that was not made or that failed: of a denial the deciding one, of
// a failure no reasons of its earlier, allowing decision.
func (r Result) Cause() []Reason {
	switch r.Status {
	case facts.OK:
		return nil
	case facts.Denied:
		return r.Why[:min(1, len(r.Why))]
	case facts.Waiting:
		return r.Why
	}
	return slices.DeleteFunc(slices.Clone(r.Why), func(w Reason) bool {
		first, _, _ := strings.Cut(w.Code, ".")
		return slices.Contains(decisive, first) || w.Code == DelegationChain
	})
}

// PeerWaits is the code of a call that ended while a person at an A2A peer was asked.
const PeerWaits = "peer.waits"

// DelegationChain is the code of the note on a decision that names its delegations.
const DelegationChain = "delegation.chain"

// decisive are the first words of the codes that an allowing decision has.
var decisive = []string{"mode", "approval", "annotation", "rule"}

// Stop is the cause of a context whose call was ended from outside.
type Stop struct{ Why Reason }

func (s *Stop) Error() string { return s.Why.Text }

// Stopped returns why the call of a context was ended from outside; nil: it was not.
func Stopped(ctx context.Context) *Reason {
	if s := (*Stop)(nil); errors.As(context.Cause(ctx), &s) {
		return &s.Why
	}
	return nil
}

// waits is the context key of the WithWait function.
type waits struct{}

// WithWait returns a context whose calls invoke begin at the start of a human's approval, and over at its end.
// Functions of an outer WithWait are called, too.
func WithWait(ctx context.Context, begin func() (over func())) context.Context {
	before, _ := ctx.Value(waits{}).(func() func())
	if before == nil {
		return context.WithValue(ctx, waits{}, begin)
	}
	return context.WithValue(ctx, waits{}, func() func() {
		outer, inner := before(), begin()
		return func() { inner(); outer() }
	})
}

// Wait reports that a call of the context waits for a human, until over is called.
func Wait(ctx context.Context) (over func()) {
	if begin, ok := ctx.Value(waits{}).(func() func()); ok {
		return begin()
	}
	return func() {}
}

// Reasons are causes in the order in which they count.
type Reasons []Reason

// ForCallers returns them without what the operator alone reads.
func (l Reasons) ForCallers() []Reason {
	if !slices.ContainsFunc(l, func(r Reason) bool { return r.Cause != "" }) {
		return l
	}
	out := slices.Clone(l)
	for i := range out {
		out[i].Cause = ""
	}
	return out
}

// AppendJSON appends them as encoding/json would write them.
func (l Reasons) AppendJSON(b []byte) []byte {
	if l == nil {
		return append(b, "null"...)
	}
	text := func(name, s string) {
		if s != "" {
			b = strictjson.AppendText(append(b, name...), s)
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			b = strconv.AppendInt(append(b, name...), int64(n), 10)
		}
	}
	b = append(b, '[')
	for i, r := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendText(append(b, `{"code":`...), r.Code)
		text(`,"text":`, r.Text)
		text(`,"file":`, r.File)
		number(`,"line":`, r.Line)
		number(`,"column":`, r.Column)
		text(`,"cause":`, r.Cause)
		number(`,"retry_after":`, r.RetryAfter)
		b = append(b, '}')
	}
	return append(b, ']')
}

// Result is the answer as it is shown to the agent: redacted and cut to its budget.
type Result struct {
	CallID     string
	DecisionID string
	Status     facts.Status
	Content    []Content
	Structured strictjson.Value
	IsError    bool
	Answered   bool // as of the outcome
	Fault      *Fault
	Trust      Trust
	Facts      facts.Facts
	Why        []Reason
	ApprovalID string     // set while the call waits for a human
	Preview    *Preview   // of a call that was not made yet; nil: none
	Suspended  *Suspended // the program of this call waits for a human, and not the call itself
	Replayed   string     // the earlier call with the same key whose recorded result this is; empty: it is its own
	Settled    Settled    // what waldo found out after an unknown outcome; empty: it did not look
	Undo       *Undo      // what would undo the call; nil: not known
	Row        string     // digest of what waldo remembers of the call, for the log; empty: nothing
	RowKey     string     // the name of its key, and until when it counts, for the log; empty: it has none
	Cut        bool       // something of the answer did not fit the budget, and is not here
	Held       int        // the number of the call in the list of its program; 0: it is not held
	Logged     Logged     // the record of how the call ended
}

// Logged names a record of the log.
type Logged struct {
	Seq    uint64 `json:"index"`  // its number; 0: there is none
	Digest string `json:"sha256"` // 64 hexadecimal digits, as the record itself has them
}

// Settled is what waldo found out about a write with an unknown outcome.
type Settled string

// The ends of a settlement. Empty: there was none.
const (
	Happened     Settled = "happened"
	NotHappened  Settled = "not_happened"
	StillUnknown Settled = "still_unknown"
)

// NotKnown ends waldo's words about a call without an answer. A settlement takes it away.
const NotKnown = "; whether it took effect is not known: look before trying again"

// Text puts it into words for the model, with a space at its end; empty: nothing was settled.
func (s Settled) Text() string {
	switch s {
	case Happened:
		return "waldo looked: the call took effect, so do not make it again. "
	case NotHappened:
		return "waldo looked: the call did not take effect, so it can be made again. "
	case StillUnknown:
		return "waldo looked and could not find out whether the call took effect: look before trying again. "
	}
	return ""
}

// MetaTimeout is the member of _meta that says how many milliseconds a caller waits for the answer to a call.
const MetaTimeout = "waldo/timeout_ms"

// ErrCallerGone is the cause of a context whose caller does not wait any longer. The contract's own time is not over.
var ErrCallerGone = errors.New("the time that the caller gave is over")

// Acted returns the call whose result this is: the earlier one of a replay.
func (r Result) Acted() string { return cmp.Or(r.Replayed, r.CallID) }

// Meta returns the metadata of an answer, for programs.
func (r Result) Meta() map[string]any {
	meta := map[string]any{"waldo/call_id": r.CallID, "waldo/decision_id": r.DecisionID, "waldo/status": string(r.Status),
		"waldo/trust": r.Trust.String(), "waldo/facts": facts.Brief(r.Facts)}
	if why := r.Cause(); len(why) > 0 {
		meta["waldo/reasons"] = Reasons(why)
	}
	if r.ApprovalID != "" {
		meta["waldo/approval_id"] = r.ApprovalID
	}
	if r.Logged.Seq > 0 {
		meta["waldo/log"] = r.Logged
	}
	if r.Preview != nil {
		meta["waldo/confirm"] = r.Preview.Token
	}
	MetaOf(r, meta)
	return meta
}

// Earlier reports whether a call is refused because one with the same key can have had the effect.
func (r Result) Earlier() bool {
	return r.Status == facts.Denied && len(r.Why) > 0 &&
		(r.Why[0].Code == "idempotency.unknown" || r.Why[0].Code == "idempotency.in_progress")
}

// MetaOf adds to the metadata of an answer how its call ended, where there is more to say than the status.
func MetaOf(r Result, meta map[string]any) {
	if r.Replayed != "" {
		meta["waldo/replayed"], meta["waldo/replay_of"] = true, r.Replayed
	}
	if r.Settled != "" {
		meta["waldo/settled"] = r.Settled
	}
	if r.Undo != nil {
		meta["waldo/undo"] = r.Undo
	}
	if r.Held > 0 {
		meta["waldo/held"] = r.Held
	}
	if why := r.Cause(); len(why) > 0 && why[0].RetryAfter > 0 {
		meta["waldo/retry_after"] = why[0].RetryAfter
	}
}

// Undo is the call that would undo another.
type Undo struct {
	By   Capability `json:"by"`
	Args Args       `json:"args"`
}

// Size returns how many bytes of content the result holds.
func (r Result) Size() int64 {
	n := len(r.Structured.Raw()) + len(r.Facts.Stderr)
	for _, c := range r.Content {
		n += len(c.Text) + len(c.Raw.Raw())
	}
	return int64(n)
}

// Tool is the definition of a capability as an agent may see it.
type Tool struct {
	Capability  Capability
	Title       string
	Description string
	Input       strictjson.Value // JSON Schema of the arguments
	Output      strictjson.Value // JSON Schema of the structured result; may be the zero Value
	Annotations strictjson.Value // as the server gave them: never believed, they may only tighten
	Server      string           // the upstream it comes from; empty for a tool of waldo's own
	Digest      string           // SHA-256 of the definition's canonical JSON
	Confirm     string           // the argument that quotes the token of a preview; empty: absent
}

// Define returns the definition of a tool of waldo's own. The schema is waldo's own text.
func Define(name Capability, title, description, input string) Tool {
	v, err := strictjson.Parse([]byte(input))
	if err != nil {
		panic("definition of " + string(name) + ": " + err.Error())
	}
	return Tool{Capability: name, Title: title, Description: description, Input: v,
		Digest: strictjson.Digest([]byte(string(name) + "\n" + description + "\n" + input))}
}
