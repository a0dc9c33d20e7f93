package webhook

import (
	"context"
	"errors"

	"waldo/internal/model/call"
	"waldo/internal/storage/inbox"
)

// Retry makes a delivery due now, with all its tries, and returns it as it was before. by is the operator.
func (h *Hooks) Retry(ctx context.Context, id string, by string) (*inbox.Delivery, error) {
	return h.act(ctx, id, "retried", by, h.o.Queue.Retry)
}

// Drop removes a delivery. A replay of it is still refused.
func (h *Hooks) Drop(ctx context.Context, id string, by string) (*inbox.Delivery, error) {
	return h.act(ctx, id, "dropped", by, h.o.Queue.Drop)
}

// act records a change of the operator before it is made, and how it ended. A record "begun" without a later one says
// that waldo was killed: the queue shows whether the change was made.
func (h *Hooks) act(
	ctx context.Context, id, event string, by string, change func(ctx context.Context, id string) error,
) (*inbox.Delivery, error) {
	d, err := h.o.Queue.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	e := h.about(d, event)
	e.Principal, e.Result = call.Principal(by), "begun"
	if event == "retried" {
		e.Row = d.Digest()
	}
	if err := h.record(ctx, e, true); err != nil {
		return nil, err
	}
	err = change(ctx, id)
	if e.Result = "done"; event == "dropped" {
		e.Ended = d.Digest()
	}
	if err != nil {
		e.Result, e.Reason = "refused", err.Error()
	}
	return d, errors.Join(err, h.record(ctx, e, true))
}
