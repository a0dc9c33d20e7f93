package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/display"
	"waldo/internal/storage/inbox"
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
	site.Webhook
	refused map[string]int
}

// count enters one record of a webhook.
func (all hookCounts) count(r audit.Record) {
	var e struct {
		Event, Hook, Target, Reason string
		Count                       int
	}
	if r.Kind != inbox.Kind || json.Unmarshal(r.Body, &e) != nil || e.Event == "" {
		return
	}
	k := hookKey{e.Hook, e.Target == inbox.Out}
	h := all[k]
	if h == nil {
		if len(all) >= maxHooks {
			return
		}
		h = &hookCount{site.Webhook{Name: k.name, Out: k.out}, map[string]int{}}
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

// Webhooks satisfies site.Backend: the senders of waldo.yaml, then others that the log knows, then receivers.
func (p *Operator) Webhooks(ctx context.Context) (site.List[site.Webhook], error) {
	out := site.List[site.Webhook]{Items: []site.Webhook{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	p.index.mu.Lock()
	defer p.index.mu.Unlock()
	named := p.o.Waldo.Config().Webhooks
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
		w := site.Webhook{Name: k.name}
		var refused map[string]int
		if h := p.index.hooks[k]; h != nil {
			w, refused = h.Webhook, h.refused
		}
		w.Refused = []site.Refuse{}
		for reason, n := range refused {
			w.Refused = append(w.Refused, site.Refuse{Reason: reason, Count: n})
		}
		slices.SortFunc(w.Refused, func(a, b site.Refuse) int {
			return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason))
		})
		if c, ok := named[k.name]; ok && !k.out {
			w.Scheme, w.Target = string(c.Scheme), cmp.Or(c.Deliver.Tool, inbox.Agent)
		}
		out.Items = append(out.Items, w)
	}
	return out, nil
}

// Deliveries satisfies site.Backend. The cursor is the id of the last one.
func (p *Operator) Deliveries(
	ctx context.Context, state string, page site.Page,
) (site.List[site.Delivery], error) {
	out := site.List[site.Delivery]{Items: []site.Delivery{}}
	if !slices.Contains([]string{"", "waiting", inbox.Dead}, state) {
		return out, site.Problemf(http.StatusBadRequest, "state", "state is waiting or dead")
	}
	all, err := p.o.Webhooks.List(ctx)
	for _, d := range all {
		if state != "" && (d.State == inbox.Dead) != (state == inbox.Dead) {
			continue
		}
		if out.Total++; page.Cursor != "" && d.ID <= page.Cursor {
			continue
		}
		if len(out.Items) == page.Limit {
			out.Next = out.Items[page.Limit-1].ID
			continue
		}
		one := site.Delivery{ID: d.ID, Hook: d.Hook, Target: d.Target, State: d.State, Tries: d.Tries, At: d.At, Due: d.Due,
			Reason: d.Reason, Event: display.Clip(d.Event, 128), Type: display.Clip(d.ContentType, 128), Bytes: d.Size}
		if d.Target == inbox.Tool {
			one.Call = d.Work
		}
		out.Items = append(out.Items, one)
	}
	return out, err
}

// DeliveryAct satisfies site.Backend, as waldo hook retry and waldo hook drop do.
func (p *Operator) DeliveryAct(ctx context.Context, who site.Who, id, act string) (err error) {
	switch act {
	case "retry":
		_, err = p.o.Events.Retry(ctx, id, string(who.Principal))
	case "drop":
		_, err = p.o.Events.Drop(ctx, id, string(who.Principal))
	default:
		return site.Problemf(http.StatusNotFound, "act", "a webhook is retried or dropped")
	}
	switch {
	case errors.Is(err, inbox.ErrNone):
		return site.Problemf(http.StatusNotFound, "webhook.unknown", "no such webhook waits")
	case errors.Is(err, inbox.ErrHeld):
		return site.Problemf(http.StatusConflict, "webhook.held", "a running waldo works on it; try again when it has ended")
	}
	return err
}
