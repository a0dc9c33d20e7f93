package app

import (
	"context"
	"maps"
	"slices"

	"waldo/internal/app/fault"
	"waldo/internal/app/hooks"
	"waldo/internal/core/session"
	receive "waldo/internal/frontend/webhook"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/webhook"
)

// Deliveries hands over accepted webhooks: those with `deliver: agent` have the target webhook.Agent. How each try ended
// goes to the log.
func (h *App) Deliveries() webhook.Deliveries {
	return hooks.New(hooks.Options{Queue: h.Webhooks(), Log: h.Log}).Deliveries()
}

// Hooks returns the webhooks of this application. Their calls have the sessions of g, one for each webhook.
func (h *App) Hooks(g *session.Shared) *hooks.Hooks {
	return hooks.New(hooks.Options{
		Queue: h.Webhooks(), Log: h.Log, Config: func() *contract.Config { return h.lives.inForce().Config },
		Secret: func(r secret.Ref) (secret.Value, error) { return h.lives.inForce().secrets.Get(r) },
		Prepare: func(ctx context.Context, c *call.Call) *call.Reason {
			now := h.lives.inForce()
			if !now.Policy.Visible(c.Capability) {
				return nil // the policy refuses it
			}
			t := call.Tool{Capability: c.Capability}
			if e, ok := now.Catalogue.Lookup(ctx, string(c.Capability)); ok {
				c.ToolDigest, c.Annotations, t = e.Digest, e.Annotations, e.Tool
			}
			return now.Check(*c, t)
		},
		Call: h.lives.call, Refuse: h.lives.refuse,
		Session: func(p call.Principal) (call.Session, func(), error) {
			n, err := g.Enter(p)
			return n, func() { g.Leave(n) }, err
		},
	})
}

// hookKeys returns an error if the secret of a webhook is missing or does not fit its scheme.
func (h *App) hookKeys() error {
	for _, name := range slices.Sorted(maps.Keys(h.Config.Webhooks)) {
		w := h.Config.Webhooks[name]
		if _, err := receive.Keys(w, h.secrets.Get); err != nil {
			return &fault.Error{Usage: true, Err: contract.Problems{{At: w.At, Code: "webhook.secret",
				Text: "webhook " + name + ": " + err.Error()}}, Tip: "openssl rand -base64 32 makes a good one"}
		}
	}
	return nil
}
