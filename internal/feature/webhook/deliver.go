package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/feature/webhook/receive"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/inbox"
)

// Limits of the deliveries that this process hands over.
const (
	workers = 8
	every   = time.Second      // between two looks at the queue
	drain   = 10 * time.Second // for calls under way once waldo ends
	askedIn = time.Minute      // until a call that waits for a human is made again
)

// HandedOver is the record of a try of a delivery, or of the operator's change of it.
type HandedOver struct {
	Event     string         `json:"event"` // queued, delivered, retry or dead; retried or dropped
	Delivery  string         `json:"delivery_id"`
	Hook      string         `json:"hook"`
	Principal call.Principal `json:"principal"`
	Target    string         `json:"target"`
	Call      string         `json:"call_id,omitempty"`
	Session   string         `json:"session,omitempty"` // of the agent that worked on it
	Tries     int            `json:"tries"`
	Result    string         `json:"result,omitempty"` // of the operator's change: begun, done or refused
	Reason    string         `json:"reason,omitempty"`
	Row       string         `json:"row,omitempty"`       // digest of a queued or retried delivery
	Ended     string         `json:"row_ended,omitempty"` // of one that is not handed over any more
}

// Run hands over deliveries until ctx is done. Then it waits for those under way, for a while.
func (h *Hooks) Run(ctx context.Context) {
	var all sync.WaitGroup
	free := make(chan struct{}, workers)
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	look, flush := time.NewTicker(every), time.NewTicker(time.Minute)
	defer look.Stop()
	defer flush.Stop()
	for ctx.Err() == nil {
		for _, target := range []string{inbox.Tool, inbox.Out} {
			h.takeAll(ctx, work, target, free, &all)
		}
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-look.C:
		case <-flush.C:
			h.server.Flush()
		}
	}
	stop := time.AfterFunc(drain, end)
	all.Wait()
	stop.Stop()
	end()
	h.server.Flush()
}

// takeAll claims what is due for a target, as long as a worker is free.
func (h *Hooks) takeAll(ctx, work context.Context, target string, free chan struct{}, all *sync.WaitGroup) {
	for ctx.Err() == nil {
		select {
		case free <- struct{}{}:
		default:
			return
		}
		d, err := h.o.Queue.Claim(ctx, target)
		if d == nil || err != nil {
			<-free
			if err != nil && ctx.Err() == nil {
				slog.Warn("webhooks wait", "why", err)
			}
			return
		}
		all.Go(func() {
			defer h.Wake()
			defer func() { <-free }()
			if err := h.carry(work, d); err != nil {
				slog.Warn("the end of a delivery was not noted", "delivery", d.ID, "why", err)
			}
		})
	}
}

// carry tries one claimed delivery. One that arrived has no State then.
func (h *Hooks) carry(ctx context.Context, d *inbox.Delivery) error {
	why := h.forged(ctx, d)
	switch {
	case why != nil:
	case d.Target == inbox.Out:
		why = h.send(ctx, d)
	default:
		why = h.call(ctx, d)
	}
	err := h.end(ctx, d, why)
	if err == nil && why == nil {
		d.State = ""
	}
	return err
}

// forged returns why a delivery is not handed over: the log did not record it as it is.
func (h *Hooks) forged(ctx context.Context, d *inbox.Delivery) *inbox.Failure {
	why := h.o.Witness.Bound(ctx, d.ID, d.Digest(), d.Foreign)
	if why == nil {
		return nil
	}
	if reason := h.dead(ctx, d.ID); reason != "" { // its waldo was killed before it stored that, or the row was changed
		why.Text = "the log has this delivery as dead: " + reason
	}
	return &inbox.Failure{Final: true, Reason: why.Code + ": " + why.Text}
}

// dead returns why a delivery is dead, by the log; empty: it is not.
func (h *Hooks) dead(ctx context.Context, id string) (reason string) {
	all, _ := audit.Find(ctx, audit.Dir(h.o.Queue.Store.Dir()), id) // only a better word is lost
	for _, r := range all {
		var e HandedOver
		if r.Kind != inbox.Kind || json.Unmarshal(r.Body, &e) != nil || e.Delivery != id {
			continue
		}
		switch e.Event {
		case "dead":
			reason = strings.TrimPrefix(e.Reason, "row.forged: the log has this delivery as dead: ")
		case "retried":
			reason = ""
		}
	}
	return reason
}

// end notes how a try ended: in the queue, which decides, then in the log. That a delivery is dead is recorded first: a
// row that is queued again has the log against it from then on.
func (h *Hooks) end(ctx context.Context, d *inbox.Delivery, why *inbox.Failure) error {
	ctx = context.WithoutCancel(ctx)
	e := h.about(d, "delivered")
	if why == nil {
		e.Ended = d.Digest()
		return errors.Join(h.o.Queue.Done(ctx, d), h.record(ctx, e, false))
	}
	if e.Event, e.Reason = "retry", why.Text(); why.Dead(d) {
		e.Event = "dead"
		if err := h.record(ctx, e, true); err != nil {
			return err // it is claimed, until this process has ended
		}
		slog.Warn("a webhook waits for the operator: waldo hook list", "delivery", d.ID, "webhook", d.Hook,
			"why", e.Reason)
	}
	err := h.o.Queue.Fail(ctx, d, *why)
	if why.Free || e.Event == "dead" {
		return err // the question is in the log, or its end
	}
	return errors.Join(err, h.record(ctx, e, false))
}

// call calls the tool of a delivery's webhook; nil: it was called, once.
func (h *Hooks) call(ctx context.Context, d *inbox.Delivery) *inbox.Failure {
	w, ok := h.hook(d.Hook)
	if !ok || w.Agent {
		return &inbox.Failure{Final: true, Reason: "waldo.yaml has no webhook " + d.Hook + " that calls a tool"}
	}
	if d.Work != "" {
		if done, why := h.resumed(ctx, d, w.Tries); done || why != nil {
			return why
		}
	}
	args, err := arguments(w.Deliver.Args, d)
	if err != nil {
		return &inbox.Failure{Final: true, Reason: err.Error()}
	}
	who := h.o.Kernel.Config().Gateway.Tenants.Of(receive.Principal(d.Hook))
	n, leave, err := h.o.Kernel.Enter(who)
	if err != nil {
		return &inbox.Failure{Reason: "no session: " + err.Error(), Max: w.Tries}
	}
	defer leave()
	c := call.Call{ID: id.New(id.Call), Capability: call.Capability(w.Deliver.Tool), Args: args, Session: n,
		Principal: who, Channel: "webhook"}
	if err := h.o.Queue.Begin(ctx, d, c.ID); err != nil {
		return &inbox.Failure{Reason: err.Error()}
	}
	do := h.o.Kernel.Call
	if why := h.o.Kernel.Prepare(ctx, &c); why != nil {
		do = func(ctx context.Context, c call.Call) (call.Result, error) { return h.o.Kernel.Refuse(ctx, c, *why) }
	}
	r, err := do(ctx, c)
	if err != nil { // the log decides about the next try
		return &inbox.Failure{Reason: "waldo failed: " + err.Error(), Max: w.Tries}
	}
	return judge(r, w)
}

// judge says what follows from the result of a call.
func judge(r call.Result, w contract.Webhook) *inbox.Failure {
	switch {
	case r.Status == facts.OK:
		return nil
	case r.Status == facts.Waiting:
		return &inbox.Failure{Free: true, After: askedIn, Reason: "waits for a human: waldo approve " + r.ApprovalID}
	case r.Status == facts.Denied:
		return &inbox.Failure{Final: true, Reason: "denied: " + because(r)}
	case r.Facts.SideEffect != facts.None:
		return &inbox.Failure{Final: true, Reason: "the call ended as " + string(r.Status) +
			", and it can have had an effect: waldo log --call " + r.CallID}
	}
	return &inbox.Failure{Reason: "the call ended as " + string(r.Status) + ": " + because(r), Max: w.Tries}
}

func because(r call.Result) string {
	if why := r.Cause(); len(why) > 0 {
		return why[0].Code + ": " + why[0].Text
	}
	return "waldo log --call " + r.CallID
}

// resumed looks up in the log what became of a call that an ended process began. done: it succeeded. Neither done nor
// a failure: it had no effect, and can be made.
func (h *Hooks) resumed(ctx context.Context, d *inbox.Delivery, tries int) (done bool, why *inbox.Failure) {
	all, err := audit.Find(ctx, audit.Dir(h.o.Queue.Store.Dir()), d.Work)
	if err != nil {
		return false, &inbox.Failure{Reason: "the log cannot be read: " + err.Error(), Max: tries}
	}
	begun := false
	for _, r := range all {
		var e struct {
			CallID string `json:"call_id"`
			Effect string `json:"effect"`
			Status facts.Status
			Facts  struct {
				SideEffect facts.SideEffect `json:"side_effect"`
			} `json:"facts"`
		}
		if json.Unmarshal(r.Body, &e) != nil || e.CallID != d.Work {
			continue
		}
		switch r.Kind {
		case audit.KindDecision:
			begun = e.Effect == "allow"
		case audit.KindAnswer:
			begun = true
		case audit.KindOutcome:
			if e.Status == facts.OK {
				return true, nil
			}
			begun = e.Facts.SideEffect != facts.None
		}
	}
	if begun {
		return false, &inbox.Failure{Final: true, Reason: "waldo ended during the call, which can have had an effect: " +
			"waldo log --call " + d.Work}
	}
	return false, nil
}
