package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/hold"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// Limits of the index in memory. Older calls are in the log alone.
const (
	maxCalls  = 20_000
	maxEvents = 4096
	eventRoom = 256 // events that a slow client may be behind
	watchTime = 500 * time.Millisecond
	readTime  = 200 * time.Millisecond // between two reads of the log
	countTime = 3 * time.Second        // between looks for questions whose process has ended
)

// index holds the newest calls of the log, and hands new records to live clients.
type index struct {
	begin func() // starts the reading, once

	reading sync.Mutex
	log     *audit.Tail

	mu     sync.Mutex
	begun  bool
	calls  map[string]*entry        // by decision
	asked  map[string]*entry        // by approval: the newest call that asked it
	said   map[string][]site.Answer // by approval
	rows   map[heldRow]*entry       // the calls of approved lists
	order  []*entry                 // by the time of the decision
	egress map[reach]*site.Egress
	recent []audit.Record // of interest to an operator, the oldest first
	hours  hours
	hooks  hookCounts
	stops  map[string]bool // sessions that an operator has stopped: they stay ended
	events []site.LiveEvent
	last   uint64
	ready  chan struct{} // closed when the log was read to the end once
	caught bool
	subs   map[chan site.LiveEvent]bool
}

// entry is one call with the process that its session ends with; empty: it outlives each.
type entry struct {
	site.Call
	asker  string
	ofTool bool   // its error was the tool's own answer
	end    string // another word than its result: whether it took effect is not known, or was settled
	undoBy string // the capability that would undo it
}

// answered reports whether the tool answered, also with its own error.
func (e entry) answered() bool { return e.Status == "ok" || e.ofTool }

// fault reports whether the call failed because of its server.
func (e entry) fault() bool { return !e.ofTool && (e.Status == "failed" || e.Status == "timeout") }

// heldRow is one call of an approved list, by its number.
type heldRow struct {
	approval string
	number   int
}

func newIndex(dir string, begin func()) *index {
	return &index{begin: begin, log: audit.NewTail(dir, 0), calls: map[string]*entry{}, asked: map[string]*entry{},
		rows: map[heldRow]*entry{}, said: map[string][]site.Answer{}, stops: map[string]bool{},
		egress: map[reach]*site.Egress{}, hours: hours{}, hooks: hookCounts{}, ready: make(chan struct{}),
		subs: map[chan site.LiveEvent]bool{}}
}

// use starts the reading of the log, waits until its end was reached once, and reads what has come since.
func (x *index) use(ctx context.Context) error {
	x.mu.Lock()
	if !x.begun {
		x.begun = true
		x.begin()
	}
	x.mu.Unlock()
	select {
	case <-x.ready:
		_ = x.read(ctx) // follow logs why it cannot
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read enters the records that have come since the last read.
func (x *index) read(ctx context.Context) error {
	x.reading.Lock()
	defer x.reading.Unlock()
	return x.log.Read(func(r audit.Record) error {
		x.take(r)
		return ctx.Err()
	})
}

// follow reads the log as it is, and then its new records until ctx ends.
func (x *index) follow(ctx context.Context) {
	defer x.reached()
	for ctx.Err() == nil {
		pause := readTime
		if err := x.read(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("the console cannot read the log", "why", err)
			pause = 2 * time.Second
		}
		x.reached()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
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
	CallID     string          `json:"call_id"`
	DecisionID string          `json:"decision_id"`
	ApprovalID string          `json:"approval_id"`
	Capability string          `json:"capability"`
	Principal  string          `json:"principal"`
	Agent      string          `json:"agent"`
	Asker      string          `json:"asker"`
	Folder     string          `json:"folder"`
	Session    string          `json:"session"`
	Channel    string          `json:"channel"`
	Parent     string          `json:"parent"`
	Mode       string          `json:"mode"`
	Danger     int             `json:"danger"`
	Effect     string          `json:"effect"`
	Status     string          `json:"status"`
	OfTool     bool            `json:"of_tool"`
	DryRun     bool            `json:"dry_run"`
	Args       json.RawMessage `json:"args"`
	Reasons    []call.Reason   `json:"reasons"`
	Why        []call.Reason   `json:"why"`
	Server     string          `json:"server"`
	Attempts   []facts.Attempt `json:"attempts"` // of a server
	UndoBy     string          `json:"undo_by"`
	Settled    call.Settled    `json:"settled"`
	Facts      struct {
		SideEffect string `json:"side_effect"`
		Usage      struct {
			Wall float64 `json:"wall_ms"`
			CPU  float64 `json:"cpu_ms"`
		} `json:"usage"`
		ExitCode *int          `json:"exit_code"`
		Network  facts.Network `json:"network"`
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
		x.decided(r, b)
	case r.Kind == control.KindStop && b.Session != "":
		x.stops[b.Session] = true
	default:
		effect := ""
		c := x.calls[b.DecisionID]
		if c != nil {
			effect = c.Effect
			if b.ApprovalID != "" {
				c.Approval, x.asked[b.ApprovalID] = b.ApprovalID, c
			}
		}
		switch r.Kind {
		case audit.KindVerdict, audit.KindAnswer:
			x.answered(b.ApprovalID, r)
		case audit.KindSettled:
			if c != nil {
				c.end = cmp.Or(settled[string(b.Settled)], c.end)
			}
		case audit.KindEgress:
			x.attempted(b.Attempts, site.Egress{By: b.Server, Server: true, Last: r.At})
		case audit.KindOutcome:
			x.hours.count(r, b, effect)
			if c != nil {
				c.Status, c.WallMS, c.CPUMS, c.Because = b.Status, b.Facts.Usage.Wall, b.Facts.Usage.CPU, because(b, c.Because)
				c.end, c.undoBy, c.ofTool = cmp.Or(endOf(b), c.end), b.UndoBy, b.OfTool
				x.attempted(b.Facts.Network.Tried(), site.Egress{By: c.Capability, Agent: c.Agent, Call: c.ID, Last: r.At})
			}
		}
	}
	x.notable(r, b)
	data, _ := json.Marshal(map[string]any{"seq": r.Seq, "at": r.At, "call_id": b.CallID, "decision_id": b.DecisionID,
		"approval_id": b.ApprovalID, "capability": b.Capability, "effect": b.Effect, "status": b.Status})
	x.send(site.LiveEvent{Seq: r.Seq, Kind: r.Kind, Data: data})
}

// settled are the ends of held calls by what a settlement found.
var settled = map[string]string{"happened": site.Done, "not_happened": "not done"}

// endOf returns the end of a call whose status alone does not say whether it took effect; empty: its status does.
func endOf(b body) string {
	for _, why := range b.Why {
		if found, ok := strings.CutPrefix(why.Code, "settle."); ok && settled[found] != "" {
			return settled[found]
		}
	}
	if b.Facts.SideEffect == facts.Unknown.String() {
		return "unknown"
	}
	return ""
}

// decided enters a decision.
func (x *index) decided(r audit.Record, b body) {
	c := &entry{Call: shortly(r, b), asker: b.Asker}
	for _, why := range b.Reasons {
		if n, approvalID := hold.PlaceOf(why); n > 0 {
			if x.rows[heldRow{approvalID, n}] = c; why.Code == "hold.struck" {
				c.end = "struck out"
			}
		}
	}
	x.calls[b.DecisionID] = c
	x.hours.count(r, b, b.Effect)
	x.order = append(x.order, c)
	if len(x.order) > 2*maxCalls {
		for _, old := range x.order[:maxCalls] {
			delete(x.calls, old.Decision)
			delete(x.said, old.Approval)
			delete(x.asked, old.Approval)
		}
		maps.DeleteFunc(x.rows, func(_ heldRow, e *entry) bool { return x.calls[e.Decision] == nil })
		x.order = slices.Clone(x.order[maxCalls:])
	}
}

// shortly returns a decided call in short.
func shortly(r audit.Record, b body) site.Call {
	c := site.Call{
		ID: b.CallID, Seq: r.Seq, At: r.At, Capability: b.Capability, Gist: gist(b.Args), Principal: b.Principal,
		Agent: b.Agent, Folder: b.Folder, Session: b.Session, Channel: b.Channel, Parent: b.Parent, Mode: b.Mode,
		Danger: b.Danger, Effect: b.Effect, Decision: b.DecisionID,
	}
	if b.Effect != "allow" {
		c.Because = words(b.Reasons)
	}
	return c
}

// maxGist is how many bytes of the arguments and of the reason of a call are in memory.
const maxGist = 200

func words(all []call.Reason) string { return display.Clip(site.Because(all), maxGist) }

// because returns why a call ended as it did; before is the reason of its decision.
func because(b body, before string) string {
	cause := call.Result{Status: facts.Status(b.Status), Why: b.Why}.Cause()
	switch {
	case b.Status == "ok":
		return ""
	case len(cause) > 0:
		return words(cause)
	case b.Facts.ExitCode != nil && *b.Facts.ExitCode != 0:
		return "exit code " + strconv.Itoa(*b.Facts.ExitCode)
	}
	return before
}

// gist returns the start of the arguments as name=value.
func gist(args json.RawMessage) string {
	d := jsontext.NewDecoder(bytes.NewReader(args))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	var out strings.Builder
	for out.Len() < maxGist && d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		out.WriteString(key + "=" + display.Clip(string(value), maxGist) + " ")
	}
	return display.Clip(strings.TrimSuffix(out.String(), " "), maxGist)
}

// reach is what the attempts to reach another machine are summed up by.
type reach struct {
	by, host, why string
	port          int
	server, ok    bool
}

// maxEgress is how many rows of attempts are in memory.
const maxEgress = 5000

// attempted adds attempts; of is whose they are.
func (x *index) attempted(all []facts.Attempt, of site.Egress) {
	for _, a := range all {
		key := reach{of.By, a.Host, a.Why, a.Port, of.Server, a.Allowed}
		e := x.egress[key]
		if e == nil {
			if len(x.egress) >= maxEgress {
				oldest := key
				for k, e := range x.egress {
					if old := x.egress[oldest]; old == nil || e.Last < old.Last {
						oldest = k
					}
				}
				delete(x.egress, oldest)
			}
			e = &site.Egress{Attempt: a}
			x.egress[key] = e
		} else {
			e.Times, e.Sent, e.Received = e.Times+a.Times, e.Sent+a.Sent, e.Received+a.Received
		}
		e.By, e.Server, e.Agent, e.Call, e.Last = of.By, of.Server, of.Agent, of.Call, of.Last
	}
}

// maxRecent is how many records Recent has.
const maxRecent = 40

// notable keeps a record of interest to an operator.
func (x *index) notable(r audit.Record, b body) {
	switch r.Kind {
	case audit.KindVerdict, audit.KindChange, audit.KindTrust, audit.KindApprover, audit.KindPruned, audit.KindSettled,
		control.KindReload, control.KindStop:
	case audit.KindDecision:
		if b.Effect != "deny" {
			return
		}
	default:
		return
	}
	if x.recent = append(x.recent, r); len(x.recent) > 2*maxRecent {
		x.recent = slices.Clone(x.recent[maxRecent:])
	}
}

// answered enters an answer to a question. A call's use of a person's answer repeats it.
func (x *index) answered(approvalID string, r audit.Record) {
	one, ok := answer(r)
	if !ok || r.Kind == audit.KindAnswer && slices.ContainsFunc(x.said[approvalID], func(a site.Answer) bool { return a.By == one.By }) {
		return
	}
	x.said[approvalID] = append(x.said[approvalID], one)
}

// send hands an event to the live clients. One that is too far behind is cut off: it connects again and resumes.
func (x *index) send(e site.LiveEvent) {
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

// watch sends live clients that the inbox changed, and how many questions wait.
func (x *index) watch(ctx context.Context, k *approval.Service) {
	last, n, counted := "", 0, time.Time{}
	t := time.NewTicker(watchTime)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		x.mu.Lock()
		idle := len(x.subs) == 0
		x.mu.Unlock()
		if idle {
			continue
		}
		mark, err := k.Mark(ctx)
		if err != nil || mark == last && time.Since(counted) < countTime {
			continue
		}
		open, err := waiting(ctx, k)
		if counted = time.Now(); err != nil || mark == last && open == n {
			continue
		}
		last, n = mark, open
		x.mu.Lock()
		x.send(site.LiveEvent{Kind: "approvals", Data: json.RawMessage(fmt.Sprintf(`{"open":%d}`, n))})
		x.mu.Unlock()
	}
}

// waiting counts the questions in the inbox: those of this waldo, and those that peers passed on.
func waiting(ctx context.Context, k *approval.Service) (int, error) {
	open, err := k.Pending(ctx)
	if err != nil {
		return 0, err
	}
	there, err := k.AllElsewhere(ctx)
	return len(open) + len(there), err
}

// live returns a channel of the events after a number. Zero begins with the next one.
func (x *index) live(ctx context.Context, after uint64) (events <-chan site.LiveEvent, reset bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var missed []site.LiveEvent
	if after > 0 {
		i, _ := slices.BinarySearchFunc(x.events, after+1, func(e site.LiveEvent, seq uint64) int {
			return int(int64(e.Seq) - int64(seq))
		})
		missed = x.events[i:]
		reset = after > x.last || (len(x.events) > 0 && x.events[0].Seq > after+1) || len(missed) > maxEvents
		if reset {
			missed = nil
		}
	}
	c := make(chan site.LiveEvent, eventRoom+len(missed))
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
func (x *index) newest(fn func(entry) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range slices.Backward(x.order) {
		if !fn(*c) {
			return
		}
	}
}
