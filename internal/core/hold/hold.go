// Package hold collects the writes of a program, so that one approval covers all of them when it has ended.
package hold

import (
	"context"
	"encoding/json"
	"fmt"
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
	Struck  []int          `json:"struck,omitempty"` // numbers of calls that an approver struck out; only after the yes
	By      string         `json:"by,omitempty"`     // who did
}

// List collects the calls of one run until it is closed.
type List struct {
	mu     sync.Mutex
	s      Statement
	bytes  int
	closed bool
}

// New returns an empty list for a run. The statement asks at least the approvers that the contract of the run names.
func New(run policy.Decision) *List {
	read := contract.Read
	return &List{s: Statement{Program: string(run.Call.Capability), Digest: digest(run.Call),
		Role: run.Contract.Approval.By, Need: run.Contract.Approval.Need, Mode: &read}}
}

type key struct{}

// With returns a context whose calls are collected in a list, unless they read.
func With(ctx context.Context, l *List) context.Context { return context.WithValue(ctx, key{}, l) }

// Of returns the list that collects a decided call; nil: the call is carried out.
func Of(ctx context.Context, d policy.Decision) *List {
	l, _ := ctx.Value(key{}).(*List)
	reads := d.Mode() == contract.Read && !call.RunsScript(d.Call.Capability)
	if l == nil || d.Effect == policy.Deny || d.DryRun || reads {
		return nil
	}
	return l
}

// Add collects a decided call, and returns its number from 1, or the reason against it.
func (l *List) Add(ctx context.Context, d policy.Decision) (n int, against *call.Reason) {
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
	case l.closed || ctx.Err() != nil:
		return 0, refuse("ended", "the program has ended, and takes no more calls")
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
	mode := min(*l.s.Mode, d.Mode())
	l.s.Mode, l.s.Danger = &mode, max(l.s.Danger, d.Danger)
	l.s.Calls = append(l.s.Calls, Held{Capability: d.Call.Capability, Mode: d.Mode().String(), Danger: d.Danger,
		Args: raw, Key: d.Call.Key, Bound: bound})
	return len(l.s.Calls), nil
}

// Close returns the statement. Later calls are refused.
func (l *List) Close() Statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.s
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
	if run.Effect == policy.Ask { // the quoted approval was for the run itself
		c.ApprovalID = ""
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
	why := []call.Reason{{Code: approval.HeldCode,
		Text: fmt.Sprintf("the program has ended, and %d calls are to be made, in this order", len(s.Calls))}}
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

// Added is the result that the program gets for a collected call.
func Added(r call.Result, n int) call.Result {
	v, err := call.ArgsOf(map[string]any{"held": true, "number": n})
	if err == nil {
		r.Structured = v.Value()
	}
	r.IsError, r.Status = false, facts.Waiting
	r.Content = []call.Content{call.Text(fmt.Sprintf("held as call %d, and not done yet: a human is asked about all "+
		"held calls when this program has ended well", n))}
	return r
}
