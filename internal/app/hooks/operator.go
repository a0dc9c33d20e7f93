package hooks

import (
	"context"
	"errors"

	"waldo/internal/model/call"
	queue "waldo/internal/storage/webhook"
)

// Retry makes a delivery due now, with all its tries, and returns it as it was before. by is the operator.
func (h *Hooks) Retry(ctx context.Context, id string, by call.Principal) (*queue.Delivery, error) {
	return h.act(ctx, id, "retried", by, h.o.Queue.Retry)
}

// Drop removes a delivery. A replay of it is still refused.
func (h *Hooks) Drop(ctx context.Context, id string, by call.Principal) (*queue.Delivery, error) {
	return h.act(ctx, id, "dropped", by, h.o.Queue.Drop)
}

// act records a change of the operator before it is made, and how it ended. A record "begun" without a later one says
// that waldo was killed: the queue shows whether the change was made.
func (h *Hooks) act(
	ctx context.Context, id, event string, by call.Principal, change func(ctx context.Context, id string) error,
) (*queue.Delivery, error) {
	d, err := h.o.Queue.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	e := h.about(d, event)
	e.Principal, e.Result = by, "begun"
	if err := h.record(ctx, e, true); err != nil {
		return nil, err
	}
	err = change(ctx, id)
	e.Result = "done"
	if err != nil {
		e.Result, e.Reason = "refused", err.Error()
	}
	return d, errors.Join(err, h.record(ctx, e, true))
}
