package operator

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/console"
)

// Limits of the index in memory. Older calls are in the log alone.
const (
	maxCalls  = 20_000
	maxEvents = 4096
	eventRoom = 256 // events that a slow client may be behind
	watchTime = 500 * time.Millisecond
)

// index holds the newest calls of the log, and hands new records to live clients.
type index struct {
	begin func() // starts the reading, once

	mu     sync.Mutex
	begun  bool
	calls  map[string]*console.Call
	order  []*console.Call // by the time of the decision
	hours  hours
	hooks  hookCounts
	events []console.LiveEvent
	last   uint64
	ready  chan struct{} // closed when the log was read to the end once
	caught bool
	subs   map[chan console.LiveEvent]bool
}

func newIndex(begin func()) *index {
	return &index{
		begin: begin, calls: map[string]*console.Call{}, hours: hours{}, hooks: hookCounts{}, ready: make(chan struct{}), subs: map[chan console.LiveEvent]bool{},
	}
}

// use starts the reading of the log, and waits until its end was reached once.
func (x *index) use(ctx context.Context) error {
	x.mu.Lock()
	if !x.begun {
		x.begun = true
		x.begin()
	}
	x.mu.Unlock()
	select {
	case <-x.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow reads the log as it is, and then its new records until ctx ends.
func (x *index) follow(ctx context.Context, dir string) {
	defer x.reached()
	take := func(r audit.Record) error {
		x.take(r)
		return nil
	}
	_, err := audit.Select(ctx, dir, audit.Selection{}, take)
	x.reached()
	for ctx.Err() == nil {
		if err == nil {
			x.mu.Lock()
			last := x.last
			x.mu.Unlock()
			err = audit.Follow(ctx, dir, last, take)
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("the console cannot read the log", "why", err)
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			err = nil
		}
	}
}

func (x *index) reached() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.caught {
		x.caught = true
		close(x.ready)
	}
}

// body are the members of the pipeline's records that the index needs.
type body struct {
	CallID     string `json:"call_id"`
	DecisionID string `json:"decision_id"`
	ApprovalID string `json:"approval_id"`
	Capability string `json:"capability"`
	Principal  string `json:"principal"`
	Session    string `json:"session"`
	Channel    string `json:"channel"`
	Parent     string `json:"parent"`
	Mode       string `json:"mode"`
	Danger     int    `json:"danger"`
	Effect     string `json:"effect"`
	Status     string `json:"status"`
	DryRun     bool   `json:"dry_run"`
	Facts      struct {
		SideEffect string `json:"side_effect"`
		Usage      struct {
			Wall float64 `json:"wall_ms"`
			CPU  float64 `json:"cpu_ms"`
		} `json:"usage"`
	} `json:"facts"`
}

// take enters one record.
func (x *index) take(r audit.Record) {
	var b body
	known := json.Unmarshal(r.Body, &b) == nil
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = r.Seq
	x.hooks.count(r)
	switch {
	case !known || b.DryRun:
	case r.Kind == audit.KindDecision:
		c := &console.Call{
			ID: b.CallID, Seq: r.Seq, At: r.At, Capability: b.Capability, Principal: b.Principal, Session: b.Session,
			Channel: b.Channel, Parent: b.Parent, Mode: b.Mode, Danger: b.Danger, Effect: b.Effect, Decision: b.DecisionID,
		}
		x.calls[b.DecisionID] = c
		x.hours.count(r, b, b.Effect)
		x.order = append(x.order, c)
		if len(x.order) > 2*maxCalls {
			for _, old := range x.order[:maxCalls] {
				delete(x.calls, old.Decision)
			}
			x.order = slices.Clone(x.order[maxCalls:])
		}
	default:
		effect := ""
		if c := x.calls[b.DecisionID]; c != nil {
			effect = c.Effect
			if b.ApprovalID != "" {
				c.Approval = b.ApprovalID
			}
			if r.Kind == audit.KindOutcome {
				c.Status, c.WallMS, c.CPUMS = b.Status, b.Facts.Usage.Wall, b.Facts.Usage.CPU
			}
		}
		if r.Kind == audit.KindOutcome {
			x.hours.count(r, b, effect)
		}
	}
	data, _ := json.Marshal(map[string]any{"seq": r.Seq, "at": r.At, "call_id": b.CallID, "decision_id": b.DecisionID,
		"approval_id": b.ApprovalID, "capability": b.Capability, "effect": b.Effect, "status": b.Status})
	x.send(console.LiveEvent{Seq: r.Seq, Kind: r.Kind, Data: data})
}

// send hands an event to the live clients. One that is too far behind is cut off: it connects again and resumes.
func (x *index) send(e console.LiveEvent) {
	if e.Seq > 0 {
		x.events = append(x.events, e)
		if len(x.events) > 2*maxEvents {
			x.events = slices.Clone(x.events[maxEvents:])
		}
	}
	for c := range x.subs {
		select {
		case c <- e:
		default:
			delete(x.subs, c)
			close(c)
		}
	}
}

// watch tells live clients that the inbox changed.
func (x *index) watch(ctx context.Context, k *approval.Service) {
	last := ""
	t := time.NewTicker(watchTime)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		x.mu.Lock()
		n := len(x.subs)
		x.mu.Unlock()
		if n == 0 {
			continue
		}
		mark, err := k.Mark(ctx)
		if err != nil || mark == last {
			continue
		}
		last = mark
		x.mu.Lock()
		x.send(console.LiveEvent{Kind: "approvals", Data: json.RawMessage(`{}`)})
		x.mu.Unlock()
	}
}

// live returns a channel of the events after a number. Zero begins with the next one.
func (x *index) live(ctx context.Context, after uint64) (events <-chan console.LiveEvent, reset bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var missed []console.LiveEvent
	if after > 0 {
		i, _ := slices.BinarySearchFunc(x.events, after+1, func(e console.LiveEvent, seq uint64) int {
			return int(int64(e.Seq) - int64(seq))
		})
		missed = x.events[i:]
		reset = after > x.last || (len(x.events) > 0 && x.events[0].Seq > after+1) || len(missed) > maxEvents
		if reset {
			missed = nil
		}
	}
	c := make(chan console.LiveEvent, eventRoom+len(missed))
	for _, e := range missed {
		c <- e
	}
	x.subs[c] = true
	context.AfterFunc(ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.subs[c] {
			delete(x.subs, c)
			close(c)
		}
	})
	return c, reset
}

// newest calls fn with the calls from the newest on, until it returns false.
func (x *index) newest(fn func(console.Call) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range slices.Backward(x.order) {
		if !fn(*c) {
			return
		}
	}
}
