package webhook

import (
	"context"
	"errors"
	"fmt"

	"waldo/internal/feature/webhook/receive"
	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/model/call"
	"waldo/internal/model/secret"
	receiver "waldo/internal/network/send"
	"waldo/internal/storage/inbox"
)

// Outgoing is a webhook to send.
type Outgoing struct {
	URL         string
	Key         secret.Ref // of Standard Webhooks
	ContentType string
	Body        []byte
	Private     bool           // the receiver can have an address that is not public
	By          call.Principal // who sends it
}

// Send stores a webhook, then tries to send it once. The delivery that it returns is queued, dead, or sent: then its
// State is empty.
func (h *Hooks) Send(ctx context.Context, o Outgoing) (*inbox.Delivery, error) {
	u, err := receiver.Target(o.URL, o.Private)
	if err != nil {
		return nil, err
	}
	if _, err := h.key(string(o.Key)); err != nil {
		return nil, err
	}
	d := &inbox.Delivery{Hook: u.Hostname(), Target: inbox.Out, Body: o.Body, About: inbox.About{At: h.o.Now(),
		ContentType: o.ContentType, URL: u.String(), Key: string(o.Key), Private: o.Private, By: string(o.By)}}
	is, err := h.o.Queue.New(ctx, d, "")
	if err == nil && !is {
		err = inbox.NoRoom(d)
	}
	if err != nil {
		return nil, err
	}
	e := h.about(d, "queued")
	e.Row = d.Digest()
	if err := h.record(ctx, e, true); err != nil {
		return nil, err
	}
	if err := h.o.Queue.Add(ctx, d); err != nil {
		return nil, err
	}
	return d, h.carry(ctx, d)
}

// Again tries to send one delivery that is due. It returns nil where another waldo has it, or it is gone.
func (h *Hooks) Again(ctx context.Context, id string) (*inbox.Delivery, error) {
	d, err := h.o.Queue.Take(ctx, id, inbox.Out)
	if d == nil || err != nil {
		return nil, err
	}
	return d, h.carry(ctx, d)
}

// send posts an outgoing delivery, with the same id at each try.
func (h *Hooks) send(ctx context.Context, d *inbox.Delivery) *inbox.Failure {
	k, err := h.key(d.Key)
	if err != nil {
		return &inbox.Failure{Reason: err.Error()}
	}
	header := sign.Standard.Sign(k, d.ID, h.o.Now(), d.Body)
	header.Set("Content-Type", d.ContentType)
	err = receiver.Post(ctx, receiver.Request{URL: d.URL, Header: header, Body: d.Body, Private: d.Private})
	if err == nil {
		return nil
	}
	f := &receiver.Failure{Why: "the webhook was not sent"}
	errors.As(err, &f)
	if f.Gone {
		f.Why += ": it wants no more webhooks"
		same := func(o *inbox.Delivery) bool { return o.URL == d.URL }
		also, err := h.o.Queue.Seize(ctx, inbox.Out, same)
		for _, o := range also {
			err = errors.Join(err, h.end(ctx, o, &inbox.Failure{Reason: f.Why, Final: true}))
		}
		if err != nil {
			return &inbox.Failure{Reason: err.Error()}
		}
	}
	why := &inbox.Failure{Reason: f.Why, Final: !f.Again}
	if f.After > 0 {
		why.After = max(f.After, inbox.Backoff(d.Tries))
	}
	return why
}

// key fetches the key of an outgoing webhook.
func (h *Hooks) key(ref string) (sign.Key, error) {
	v, err := h.o.Kernel.Secret(secret.Ref(ref))
	if err != nil {
		return sign.Key{}, err
	}
	k, err := sign.Standard.Key(v.Reveal())
	if err != nil {
		return sign.Key{}, fmt.Errorf("%s: %w", ref, err)
	}
	return k, nil
}

// about is the record of an event of a delivery.
func (h *Hooks) about(d *inbox.Delivery, event string) HandedOver {
	e := HandedOver{Event: event, Delivery: d.ID, Hook: d.Hook, Principal: receive.Principal(d.Hook), Target: d.Target,
		Call: d.Work, Tries: d.Tries}
	if d.Target == inbox.Agent {
		e.Call, e.Session = "", d.Work
	}
	if d.By != "" {
		e.Principal = call.Principal(d.By)
	}
	return e
}
