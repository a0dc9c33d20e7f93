package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"waldo/internal/app/hooks"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/console"
	"waldo/internal/model/display"
	queue "waldo/internal/storage/webhook"
)

// maxHooks bounds the names of senders and receivers that the index counts.
const maxHooks = 1000

// hookKey names a sender, or a receiver.
type hookKey struct {
	name string
	out  bool
}

// hookCounts are counts of webhooks by sender and receiver.
type hookCounts map[hookKey]*hookCount

type hookCount struct {
	console.Webhook
	refused map[string]int
}

// count enters one record of a webhook.
func (all hookCounts) count(r audit.Record) {
	var e struct {
		Event, Hook, Target, Reason string
		Count                       int
	}
	if r.Kind != hooks.Kind || json.Unmarshal(r.Body, &e) != nil || e.Event == "" {
		return
	}
	k := hookKey{e.Hook, e.Target == queue.Out}
	h := all[k]
	if h == nil {
		if len(all) >= maxHooks {
			return
		}
		h = &hookCount{console.Webhook{Name: k.name, Out: k.out}, map[string]int{}}
		all[k] = h
	}
	switch e.Event {
	case "received", "queued":
		h.Accepted, h.Last = h.Accepted+1, r.At
	case "delivered":
		h.Delivered, h.LastDone = h.Delivered+1, r.At
	case "retry":
		h.Retries, h.LastFault, h.Why = h.Retries+1, r.At, e.Reason
	case "dead":
		h.Dead, h.LastFault, h.Why = h.Dead+1, r.At, e.Reason
	case "refused":
		h.refused[e.Reason] += max(e.Count, 1)
	}
}

// Webhooks satisfies console.Backend: the senders of waldo.yaml, then others that the log knows, then receivers.
func (p *Operator) Webhooks(ctx context.Context) (console.List[console.Webhook], error) {
	out := console.List[console.Webhook]{Items: []console.Webhook{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	named := p.o.Config().Webhooks
	keys := slices.Collect(maps.Keys(p.index.hooks))
	for name := range named {
		if p.index.hooks[hookKey{name: name}] == nil {
			keys = append(keys, hookKey{name: name})
		}
	}
	slices.SortFunc(keys, func(a, b hookKey) int {
		rank := func(k hookKey) int {
			if _, ok := named[k.name]; ok && !k.out {
				return 0
			}
			return map[bool]int{false: 1, true: 2}[k.out]
		}
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.name, b.name))
	})
	for _, k := range keys {
		w := console.Webhook{Name: k.name}
		var refused map[string]int
		if h := p.index.hooks[k]; h != nil {
			w, refused = h.Webhook, h.refused
		}
		w.Refused = []console.Refuse{}
		for reason, n := range refused {
			w.Refused = append(w.Refused, console.Refuse{Reason: reason, Count: n})
		}
		slices.SortFunc(w.Refused, func(a, b console.Refuse) int {
			return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason))
		})
		if c, ok := named[k.name]; ok && !k.out {
			w.Scheme, w.Target = string(c.Scheme), cmp.Or(c.Deliver.Tool, queue.Agent)
		}
		out.Items = append(out.Items, w)
	}
	return out, nil
}

// Deliveries satisfies console.Backend. The cursor is the id of the last one.
func (p *Operator) Deliveries(
	ctx context.Context, state string, page console.Page,
) (console.List[console.Delivery], error) {
	out := console.List[console.Delivery]{Items: []console.Delivery{}}
	if !slices.Contains([]string{"", "waiting", queue.Dead}, state) {
		return out, console.Problemf(http.StatusBadRequest, "state", "state is waiting or dead")
	}
	all, err := p.o.Webhooks.List(ctx)
	for _, d := range all {
		if state != "" && (d.State == queue.Dead) != (state == queue.Dead) {
			continue
		}
		if out.Total++; page.Cursor != "" && d.ID <= page.Cursor {
			continue
		}
		if len(out.Items) == page.Limit {
			out.Next = out.Items[page.Limit-1].ID
			continue
		}
		one := console.Delivery{ID: d.ID, Hook: d.Hook, Target: d.Target, State: d.State, Tries: d.Tries, At: d.At, Due: d.Due,
			Reason: d.Reason, Event: display.Clip(d.Event, 128), Type: display.Clip(d.ContentType, 128), Bytes: d.Size}
		if d.Target == queue.Tool {
			one.Call = d.Work
		}
		out.Items = append(out.Items, one)
	}
	return out, err
}

// DeliveryAct satisfies console.Backend, as waldo hook retry and waldo hook drop do.
func (p *Operator) DeliveryAct(ctx context.Context, who console.Who, id, act string) (err error) {
	h := hooks.New(hooks.Options{Queue: p.o.Webhooks, Log: p.o.Log})
	switch act {
	case "retry":
		_, err = h.Retry(ctx, id, who.Principal)
	case "drop":
		_, err = h.Drop(ctx, id, who.Principal)
	default:
		return console.Problemf(http.StatusNotFound, "act", "a webhook is retried or dropped")
	}
	switch {
	case errors.Is(err, queue.ErrNone):
		return console.Problemf(http.StatusNotFound, "webhook.unknown", "no such webhook waits")
	case errors.Is(err, queue.ErrHeld):
		return console.Problemf(http.StatusConflict, "webhook.held", "a running waldo works on it; try again when it has ended")
	}
	return err
}
