package app

import (
	"waldo/internal/storage/presence"
	"waldo/internal/storage/webhook"
)

// openHooks returns the queue of webhooks of the state directory.
func (h *App) openHooks() *webhook.Queue {
	q := &webhook.Queue{Store: h.Store, Gone: presence.Gone(h.State)}
	if h.asker != nil {
		q.Holder = h.asker.Name
	}
	return q
}

// Deliveries hands over accepted webhooks: those with `deliver: agent` have the target webhook.Agent.
func (h *App) Deliveries() webhook.Deliveries { return h.hooks }
