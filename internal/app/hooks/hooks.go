// Package hooks joins the parts of webhooks: it stores and records each arrival, and hands it to its target.
package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/frontend/webhook"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	sign "waldo/internal/protocol/webhook"
	queue "waldo/internal/storage/webhook"
)

// Kind is the kind of record about webhooks.
const Kind = "webhook"

// memory is how long the id of a webhook with a signed time is remembered. Senders try again for some days, and each
// time with a new signature.
const memory = 30 * 24 * time.Hour

// Options are the parts that webhooks need of an application.
type Options struct {
	Queue  *queue.Queue
	Log    *audit.Log
	Config func() *contract.Config // in force
	Secret func(secret.Ref) (secret.Value, error)
	// Prepare gives a call the definition of its tool, and returns why its arguments do not fit it.
	Prepare func(ctx context.Context, c *call.Call) *call.Reason
	Call    func(ctx context.Context, c call.Call) (call.Result, error)
	Refuse  func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	Session func(p call.Principal) (n call.Session, leave func(), err error)
	Now     func() time.Time // nil: time.Now
}

// Hooks receives webhooks and hands them over.
type Hooks struct {
	o      Options
	server *webhook.Server
	wake   chan struct{}
}

// New returns the webhooks of an application. Run hands over what the handler accepts.
func New(o Options) *Hooks {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hooks{o: o, wake: make(chan struct{}, 1)}
	h.server = webhook.New(webhook.Options{
		Hook: h.hook, Secret: o.Secret, Accept: h.accept, Now: o.Now, Log: slog.Default(),
		Record: func(e webhook.Event) {
			if err := h.record(context.Background(), e, false); err != nil {
				slog.Warn("refused webhooks were not recorded", "why", err)
			}
		},
	})
	return h
}

// Handler answers at /hooks/NAME.
func (h *Hooks) Handler() http.Handler { return h.server }

// Deliveries hands over webhooks to a target of another process, and records how each try ended.
func (h *Hooks) Deliveries() queue.Deliveries { return recorded{h.o.Queue, h} }

type recorded struct {
	*queue.Queue
	h *Hooks
}

func (r recorded) Done(ctx context.Context, d *queue.Delivery) error { return r.h.end(ctx, d, nil) }

func (r recorded) Fail(ctx context.Context, d *queue.Delivery, why queue.Failure) error {
	return r.h.end(ctx, d, &why)
}

func (h *Hooks) hook(name string) (contract.Webhook, bool) {
	w, ok := h.o.Config().Webhooks[name]
	return w, ok
}

// accept stores a webhook and records it. Without its record it is removed again.
func (h *Hooks) accept(ctx context.Context, a webhook.Arrival) (webhook.Verdict, error) {
	w, ok := h.hook(a.Hook)
	if !ok {
		return webhook.Refused, nil
	}
	target := queue.Tool
	if w.Agent {
		target = queue.Agent
	}
	seen := queue.Seen{Name: a.Name, Signed: a.Signed}
	if !a.Signed.IsZero() {
		seen.Until = h.o.Now().Add(memory + 2*w.Window)
	}
	d := &queue.Delivery{Hook: a.Hook, Target: target, Body: a.Body, About: queue.About{
		At: h.o.Now(), Name: a.Name, Event: a.Event, ContentType: clip(a.ContentType)}}
	v, err := h.o.Queue.Accept(ctx, d, seen)
	if err != nil {
		return webhook.Refused, err
	}
	if v == queue.Stored {
		if err := h.record(ctx, webhook.Event{Event: "received", Hook: a.Hook, Principal: webhook.Principal(a.Hook),
			Delivery: d.ID, Digest: sign.Digest(a.Body), Bytes: len(a.Body), Peer: a.Peer}, true); err != nil {
			return webhook.Refused, errors.Join(err, h.o.Queue.Undo(ctx, d, seen))
		}
		if err := h.o.Queue.Release(ctx, d); err != nil {
			return webhook.Refused, err
		}
		h.Wake()
	}
	return verdicts[v], nil
}

var verdicts = map[queue.Verdict]webhook.Verdict{queue.Stored: webhook.Stored, queue.Repeated: webhook.Repeated,
	queue.Replayed: webhook.Replayed, queue.Full: webhook.Full}

// record writes a record to the log. durable: it is on the disk when record returns.
func (h *Hooks) record(ctx context.Context, e any, durable bool) error {
	b, err := json.Marshal(e)
	if err == nil {
		_, err = h.o.Log.Append(context.WithoutCancel(ctx), Kind, b, durable)
	}
	return err
}

// Wake lets Run look for deliveries at once.
func (h *Hooks) Wake() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func clip(s string) string {
	if len(s) > 128 {
		return ""
	}
	return s
}
