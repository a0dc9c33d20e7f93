// Package hold collects the writes of a program, so that one approval covers all of them when it has ended.
package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// Limits of one statement.
const (
	MaxCalls = 200
	MaxBytes = 512 << 10 // of arguments; escapes can make them six times as long
	MaxShown = 128 << 10 // of previews
)

// Held is one collected call. Its position is its number.
type Held struct {
	Capability call.Capability `json:"capability"`
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Args       json.RawMessage `json:"args"`
	Key        string          `json:"key,omitempty"` // the caller's idempotency key
	Preview    []string        `json:"preview,omitempty"`
	Bound      string          `json:"bound"` // approval.Binding of its decision
}

// Statement is the collected calls of a program, in order. It is the arguments of the call that a human is asked about.
type Statement struct {
	Program string         `json:"program"` // the capability that ran the program
	Digest  string         `json:"digest"`  // of the arguments and sandbox options of that call, and its delegations
	Role    string         `json:"role,omitempty"`
	Need    int            `json:"need,omitempty"` // how many approvers must say yes; 0 and 1: one
	Danger  int            `json:"danger"`         // the highest of the calls
	Mode    *contract.Mode `json:"mode"`           // the strictest of the calls
	Calls   []Held         `json:"calls"`
	From    int            `json:"from,omitempty"`   // how many calls of the run the statements before this one have
	Before  []string       `json:"before,omitempty"` // the approvals of those statements
	Needs   int            `json:"needs,omitempty"`  // the call whose result the program waits for; 0: it has ended
	Struck  []int          `json:"struck,omitempty"` // numbers of calls that an approver struck out; only after the yes
	By      string         `json:"by,omitempty"`     // who did
}

// Made is what became of a statement.
type Made struct {
	Result     call.Result         // of the statement
	Calls      int                 // how many it has
	ApprovalID string              // its yes; empty: there is none
	Each       map[int]call.Result // of its calls that were made or struck out, by their numbers in it
}

// Row is what the log has of one call of an approved statement.
type Row struct {
	CallID     string
	Capability call.Capability
	Struck     bool
	Result     call.Result     // its status, settlement and side effect alone
	Undo       call.Capability // waldo undo undoes it by this; empty: it cannot
	Undone     bool
}

// Maker asks about a statement, and makes its calls.
type Maker interface {
	// Make does that in a session. A quoted approval can be empty.
	Make(ctx context.Context, s Statement, n call.Session, approvalID string) (Made, error)
	// Asked returns the statement of an open question of a session.
	Asked(ctx context.Context, n call.Session, approvalID string) (s Statement, found bool, err error)
}

// List collects the calls of one run until it is closed.
type List struct {
	maker Maker
	first Statement // without calls
	turns turns
	mu    sync.Mutex // also held while calls are made: the others wait
	s     Statement
	bytes int
	shown int // bytes of previews
	over  bool
	each  map[int]call.Result // of the calls that were made, by their numbers in the run
	all   Closed
}

// Closed is what a run leaves.
type Closed struct {
	Rest    Statement    // of the calls that were not asked about
	Session call.Session // of the calls
	Before  []string     // approvals of the statements that an earlier process made for this program
	Made    []Made       // the statements that the program waited for
	Waits   *call.Result // of a statement without an answer; nil: there is none
}

// New returns an empty list for a run. The statement asks at least the approvers that the contract of the run names.
func New(run policy.Decision, m Maker) *List {
	read := contract.Read
	s := Statement{Program: string(run.Call.Capability), Digest: digest(run.Call), Role: run.Contract.Approval.By,
		Need: run.Contract.Approval.Need, Mode: &read}
	return &List{maker: m, first: s, s: s, each: map[int]call.Result{}, all: Closed{Session: run.Call.Session}}
}

type key struct{}

// With returns a context whose calls are collected in a list, unless they read.
func With(ctx context.Context, l *List) context.Context { return context.WithValue(ctx, key{}, l) }

// Whose returns the list of the program that makes a call; nil: no writes are held.
func Whose(ctx context.Context) *List {
	l, _ := ctx.Value(key{}).(*List)
	return l
}

// Of returns the list that collects a decided call; nil: the call is carried out.
func Of(ctx context.Context, d policy.Decision) *List {
	l := Whose(ctx)
	reads := d.Mode() == contract.Read && !call.RunsScript(d.Call.Capability)
	if l == nil || d.Effect == policy.Deny || d.DryRun || reads {
		return nil
	}
	return l
}

// Add collects a decided call with its preview, and returns its number from 1, or the reason against it. It waits for
// the turn of the call.
func (l *List) Add(ctx context.Context, d policy.Decision, preview []string) (n int, against *call.Reason) {
	await(ctx)
	defer Pass(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	a, raw := d.Contract.Approval, d.Call.Args.Raw()
	role := ""
	if d.Effect == policy.Ask {
		role = a.By
	}
	bound, err := approval.Binding(d)
	refuse := func(code, format string, args ...any) *call.Reason {
		return &call.Reason{Code: "hold." + code, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case l.over || ctx.Err() != nil:
		return 0, refuse("ended", "the program has ended, and takes no more calls")
	case l.stopped():
		return 0, refuse("stopped", "the held calls before this one were not all made")
	case err != nil:
		return 0, refuse("unreadable", "the call cannot be bound to an approval")
	case call.RunsScript(d.Call.Capability):
		return 0, refuse("nested", "a program whose writes are held runs no other program")
	case d.Contract.Confirm:
		return 0, refuse("confirm", "the contract has the call previewed first, so it cannot be held")
	case role != "" && l.s.Role != "" && role != l.s.Role:
		return 0, refuse("role", "the contract asks role %s, and the calls before it role %s: one yes cannot cover both",
			role, l.s.Role)
	case len(l.s.Calls) >= MaxCalls:
		return 0, refuse("too_many", "a program can have at most %d held calls", MaxCalls)
	case l.bytes+len(raw) > MaxBytes:
		return 0, refuse("too_large", "the held calls of a program can have at most %d bytes of arguments", MaxBytes)
	}
	if l.bytes += len(raw); role != "" {
		l.s.Role = role
	}
	if d.Effect == policy.Ask {
		l.s.Need = max(l.s.Need, a.Need)
	}
	size := len(strings.Join(preview, "\n"))
	if l.shown+size > MaxShown {
		size, preview = 0, []string{unshown}
	}
	l.shown += size
	mode := min(*l.s.Mode, d.Mode())
	l.s.Mode, l.s.Danger = &mode, max(l.s.Danger, d.Danger)
	l.s.Calls = append(l.s.Calls, Held{Capability: d.Call.Capability, Mode: d.Mode().String(), Danger: d.Danger,
		Args: raw, Key: d.Call.Key, Preview: preview, Bound: bound})
	l.all.Session = d.Call.Session
	return l.s.From + len(l.s.Calls), nil
}

// unshown stands for a preview that the list has no room for.
const unshown = "ITS PREVIEW IS NOT SHOWN: the previews of the list would be too long"

// Unshown reports whether a preview was left out.
func Unshown(preview []string) bool { return len(preview) == 1 && preview[0] == unshown }

// stopped reports whether a statement was not carried out whole, so that no more calls are collected.
func (l *List) stopped() bool {
	n := len(l.all.Made)
	return l.all.Waits != nil || n > 0 && l.all.Made[n-1].Result.Status != facts.OK
}

// Result returns the result of a held call, which its program waits for. It first asks about all calls so far, and
// makes them. A program that was suspended quotes the approval that it waits for.
func (l *List) Result(ctx context.Context, n call.Session, number int, approvalID string) (call.Result, error) {
	await(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	Pass(ctx) // the calls after it wait for the list
	if r, ok := l.each[number]; ok {
		return r, nil
	}
	s := l.s
	s.Calls, s.Needs = slices.Clone(l.s.Calls), number
	if approvalID != "" && s.From == 0 && len(s.Calls) == 0 { // it goes on in this process
		before, found, err := l.maker.Asked(ctx, n, approvalID)
		if err != nil {
			return call.Result{}, err
		}
		if found {
			s, l.all.Before = before, before.Before
		}
	}
	switch {
	case l.all.Waits != nil:
		return *l.all.Waits, nil
	case number <= s.From && l.stopped():
		return notMade(number), nil
	case l.over || number <= s.From || number > s.From+len(s.Calls):
		return absent(call.Reason{Code: "hold.result", Text: fmt.Sprintf("there is no result of held call %d", number)}), nil
	}
	m, err := l.maker.Make(context.WithValue(ctx, key{}, (*List)(nil)), s, n, approvalID)
	if err != nil {
		return call.Result{}, err
	}
	if m.Result.Status == facts.Waiting {
		l.all.Waits = &m.Result
		return m.Result, nil
	}
	for i, r := range m.Each {
		l.each[s.From+i] = r
	}
	l.all.Made = append(l.all.Made, m)
	l.s, l.bytes, l.shown = l.first, 0, 0
	l.s.From, l.s.Before = s.From+len(s.Calls), slices.Clone(s.Before)
	if m.ApprovalID != "" {
		l.s.Before = append(l.s.Before, m.ApprovalID)
	}
	if r, ok := l.each[number]; ok {
		return r, nil
	}
	if m.Result.Status == facts.Denied {
		return m.Result, nil
	}
	return notMade(number), nil
}

// notMade is the result of a call that stands after one that did not succeed.
func notMade(number int) call.Result {
	return absent(call.Reason{Code: "hold.stopped", Text: fmt.Sprintf("held call %d was not made: waldo stops at the "+
		"first call that does not succeed", number)})
}

// absent is the result of a call that was not made.
func absent(why call.Reason) call.Result {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	return call.Result{Status: facts.Denied, IsError: true, Trust: call.Trusted, Why: []call.Reason{why}, Facts: f}
}

// Close ends the list. Later calls are refused.
func (l *List) Close() Closed {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.all.Rest = true, l.s
	return l.all
}

// Parse reads a statement.
func Parse(args call.Args) (s Statement, err error) {
	if err = args.Value().Decode(&s); err == nil && (s.Mode == nil || len(s.Calls) == 0) {
		err = fmt.Errorf("held calls: the statement is not whole")
	}
	return s, err
}

// Of reports whether a statement is of an equal call as a run.
func (s Statement) Of(run call.Call) bool {
	return s.Program == string(run.Capability) && s.Digest == digest(run)
}

// digest names what a run is: another delegation's equal run has a statement of its own.
func digest(run call.Call) string {
	return run.Args.Digest() + run.Run.Digest() + strings.Join(run.Chain, " ")
}

// Decision returns the decision that asks about a statement, as a child of its run. The contract of the run says how
// it is shown and recorded.
func (s Statement) Decision(run policy.Decision) (policy.Decision, error) {
	args, err := call.ArgsOf(s)
	if err != nil {
		return policy.Decision{}, err
	}
	c := run.Call
	c.ID, c.Capability, c.Args, c.Parent, c.Depth = id.New(id.Call), approval.Held, args, run.Call.ID, run.Call.Depth+1
	c.ToolDigest, c.Annotations, c.Run, c.Key, c.Confirm = "", strictjson.Value{}, nil, "", ""
	if run.Effect == policy.Ask || s.From > 0 { // the quoted approval was for the run itself, or an earlier statement
		c.ApprovalID = ""
	}
	if s.Needs > 0 { // the program waits
		c.Channel = "bridge"
	}
	k := run.Contract
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Ask, Reasons: s.totals(), Call: c, Danger: s.Danger,
		Policy: run.Policy, Contract: contract.Contract{Pattern: k.Pattern, At: k.At, Transport: contract.Held, Mode: *s.Mode,
			Danger: s.Danger, Approval: contract.Approval{When: contract.Always, By: s.Role, Need: s.Need},
			ResponseBudget: k.ResponseBudget, Log: k.Log, Redact: k.Redact, Trust: k.Trust}}
	return d, nil
}

// totals counts the calls, and those of each capability and danger in the order of their first.
func (s Statement) totals() []call.Reason {
	text := fmt.Sprintf("the program has ended, and %d calls are to be made, in this order", len(s.Calls))
	if s.Needs > 0 {
		text = fmt.Sprintf("the program waits for the result of call %d, and %d calls are to be made, in this order",
			s.Needs-s.From, len(s.Calls))
	}
	if s.From > 0 {
		text += fmt.Sprintf("; %d calls of it were asked about before", s.From)
	}
	why := []call.Reason{{Code: approval.HeldCode, Text: text}}
	of := func(h Held) string { return fmt.Sprintf("%s (%s, danger %d)", h.Capability, h.Mode, h.Danger) }
	n := map[string]int{}
	for _, h := range s.Calls {
		n[of(h)]++
	}
	for _, h := range s.Calls {
		if text := of(h); n[text] > 0 {
			why = append(why, call.Reason{Code: "hold.total", Text: fmt.Sprintf("%d of %s", n[text], text)})
			n[text] = 0
		}
	}
	return why
}

// Place names one call of a statement, from 1, as records do.
func Place(n, of int, approvalID string) string {
	return fmt.Sprintf("call %d of %d of the statement of approval %s", n, of, approvalID)
}

// PlaceOf returns the call of a statement that a reason is about; 0: of none.
func PlaceOf(why call.Reason) (n int, approvalID string) {
	of := 0
	if why.Code != "hold.covered" && why.Code != "hold.struck" {
		return 0, ""
	}
	if _, err := fmt.Sscanf(why.Text, "call %d of %d of the statement of approval %s", &n, &of, &approvalID); err != nil {
		return 0, ""
	}
	return n, approvalID
}

// Added is the result that the program gets for a collected call.
func Added(r call.Result, n int) call.Result {
	r.Held, r.IsError, r.Status = n, false, facts.Waiting
	r.Content = []call.Content{call.Text(fmt.Sprintf("held as call %d, and not done yet: a human is asked about all "+
		"held calls when this program has ended well, or uses a result of one", n))}
	return r
}
