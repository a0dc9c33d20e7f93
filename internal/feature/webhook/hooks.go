// Package webhook is signed webhooks: it stores and records each arrival, and hands it to its target. It sends them, too,
// and messages about questions.
package webhook

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/feature/webhook/receive"
	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/inbox"
)

// memory is how long the id of a webhook with a signed time is remembered. Senders try again for some days, and each
// time with a new signature.
const memory = 30 * 24 * time.Hour

// Options are the parts that webhooks need.
type Options struct {
	Queue   *inbox.Queue
	Log     *audit.Log
	Witness *audit.Witness // of the log; nil: one of its own
	Kernel  Kernel
	Now     func() time.Time // nil: time.Now
}

// Kernel is the part of waldo that webhooks use. Its answers are those of the configuration in force.
type Kernel interface {
	Config() *contract.Config
	Secret(secret.Ref) (secret.Value, error)
	// Prepare gives a call the definition of its tool, and returns why its arguments do not fit it.
	Prepare(ctx context.Context, c *call.Call) *call.Reason
	Call(ctx context.Context, c call.Call) (call.Result, error)
	Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Enter opens the session of a webhook; leave ends its use.
	Enter(p call.Principal) (n call.Session, leave func(), err error)
}

// Hooks receives webhooks and hands them over.
type Hooks struct {
	o      Options
	server *receive.Server
	wake   chan struct{}
}

// New returns the webhooks of an application. Run hands over what the handler accepts.
func New(o Options) *Hooks {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Witness == nil {
		o.Witness = &audit.Witness{Dir: audit.Dir(o.Queue.Store.Dir())}
	}
	h := &Hooks{o: o, wake: make(chan struct{}, 1)}
	h.server = receive.New(receive.Options{
		Hook: h.hook, Secret: h.secret, Accept: h.accept, Now: o.Now, Log: slog.Default(),
		Record: func(e receive.Event) {
			if err := h.record(context.Background(), e, false); err != nil {
				slog.Warn("refused webhooks were not recorded", "why", err)
			}
		},
	})
	return h
}

func (h *Hooks) secret(r secret.Ref) (secret.Value, error) { return h.o.Kernel.Secret(r) }

// Handler answers at /hooks/NAME.
func (h *Hooks) Handler() http.Handler { return h.server }

// Deliveries hands over webhooks to a target of another process, and records how each try ended.
func (h *Hooks) Deliveries() inbox.Deliveries { return recorded{h.o.Queue, h} }

type recorded struct {
	*inbox.Queue
	h *Hooks
}

// Claim passes over what the log did not record.
func (r recorded) Claim(ctx context.Context, target string) (*inbox.Delivery, error) {
	for {
		d, err := r.Queue.Claim(ctx, target)
		if d == nil || err != nil {
			return nil, err
		}
		why := r.h.forged(ctx, d)
		if why == nil {
			return d, nil
		}
		if err := r.h.end(ctx, d, why); err != nil {
			return nil, err
		}
	}
}

func (r recorded) Done(ctx context.Context, d *inbox.Delivery) error { return r.h.end(ctx, d, nil) }

func (r recorded) Fail(ctx context.Context, d *inbox.Delivery, why inbox.Failure) error {
	return r.h.end(ctx, d, &why)
}

func (h *Hooks) hook(name string) (contract.Webhook, bool) {
	w, ok := h.o.Kernel.Config().Webhooks[name]
	return w, ok
}

// accept records a webhook and stores it, in this order: what is acknowledged to its sender has its record. A waldo that is
// killed in between has answered nothing, and the sender's next try is another delivery.
func (h *Hooks) accept(ctx context.Context, a receive.Arrival) (receive.Verdict, error) {
	w, ok := h.hook(a.Hook)
	if !ok {
		return receive.Refused, nil
	}
	target := inbox.Tool
	if w.Agent {
		target = inbox.Agent
	}
	seen := inbox.Seen{Name: a.Name, Signed: a.Signed}
	if !a.Signed.IsZero() {
		seen.Until = h.o.Now().Add(memory + 2*w.Window)
	}
	d := &inbox.Delivery{Hook: a.Hook, Target: target, Body: a.Body, About: inbox.About{
		At: h.o.Now(), Name: a.Name, Event: a.Event, ContentType: clip(a.ContentType)}}
	is, err := h.o.Queue.New(ctx, d, a.Name)
	if err == nil && is {
		err = h.record(ctx, receive.Event{Event: "received", Hook: a.Hook, Principal: receive.Principal(a.Hook),
			Delivery: d.ID, Digest: sign.Digest(a.Body), Bytes: len(a.Body), Peer: a.Peer, Row: d.Digest()}, true)
	}
	if err != nil {
		return receive.Refused, err
	}
	v, err := h.o.Queue.Accept(ctx, d, seen)
	if err != nil {
		return receive.Refused, err
	}
	if v == inbox.Stored {
		h.Wake()
	}
	return verdicts[v], nil
}

var verdicts = map[inbox.Verdict]receive.Verdict{inbox.Stored: receive.Stored, inbox.Repeated: receive.Repeated,
	inbox.Replayed: receive.Replayed, inbox.Full: receive.Full}

// record writes a record to the log. durable: it is on the disk when record returns.
func (h *Hooks) record(ctx context.Context, e any, durable bool) error {
	b, err := json.Marshal(e)
	if err == nil {
		_, err = h.o.Log.Append(context.WithoutCancel(ctx), inbox.Kind, b, durable)
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
