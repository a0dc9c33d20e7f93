package config

import (
	"time"

	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

var hook = &mapping[contract.Webhook]{
	name: "webhooks", title: "a webhook",
	doc:     "[webhooks.md](../webhooks.md) describes webhooks in and out. Each name is served at `/hooks/NAME`.",
	example: "webhooks:\n  github: {scheme: github, secret: \"env:WEBHOOK_SECRET\", deliver: agent}\n",
	keys: []key[contract.Webhook]{
		{"scheme", word(strictyaml.OneOf("github", "stripe", "slack", "standard"),
			func(w *contract.Webhook) *string { return &w.Scheme }),
			"", "How the sender signs.", "internal/feature/webhook/signature"},
		{"secret", ref(func(w *contract.Webhook) *secret.Ref { return &w.Secret }),
			"", "The secret of the signatures.", "internal/feature/webhook/signature"},
		{"previous_secret", ref(func(w *contract.Webhook) *secret.Ref { return &w.Previous }),
			"none", "The secret before the last rotation, which is accepted too.", "internal/feature/webhook/signature"},
		{"deliver", either(isMapping, nested(hookTool, func(w *contract.Webhook) *contract.HookTool { return &w.Deliver }),
			custom(wordShape(hookWords), func(p *parser, f field, w *contract.Webhook) { w.Agent = p.Word(f, hookWords) != "" })),
			"", "The target of an accepted webhook: waldo agent, or one capability.", "internal/feature/webhook"},
		{"window", or("5m", duration(time.Hour, func(w *contract.Webhook) *time.Duration { return &w.Window })),
			"", "How far the signed time can be from now; github signs no time.", "internal/feature/webhook/signature"},
		{"max_kb", or("1024", whole(1, 2048, func(w *contract.Webhook) *int { return &w.MaxKB })),
			"", "KiB of a body.", "internal/feature/webhook/receive"},
		{"rate_limit", nested(rateLimit, func(w *contract.Webhook) *contract.Rate { return &w.Rate }),
			"120 in a minute", "How many webhooks are accepted in any window of time.", "internal/feature/webhook/receive"},
		{"tries", or("8", whole(1, 20, func(w *contract.Webhook) *int { return &w.Tries })),
			"", "How often a delivery is tried before it waits for the operator.", "internal/storage/inbox"},
	},
	check: func(p *parser, f field, w *contract.Webhook, at map[string]field) {
		_, said := at["deliver"]
		if w.Scheme == "" || w.Secret == "" || !said {
			p.Fail(f.Key, "key.missing", `as in {scheme: github, secret: "env:WEBHOOK_SECRET", deliver: agent}`,
				"a webhook wants scheme, secret and deliver")
		}
	},
}

var hookTool = &mapping[contract.HookTool]{
	name: "deliver",
	doc: "`arguments` are values; the words `$payload`, `$json`, `$json/a/b`, `$event`, `$delivery` and `$hook` stand for " +
		"values of the webhook.",
	example: "webhooks:\n  pay:\n    scheme: stripe\n    secret: \"env:STRIPE_SECRET\"\n" +
		"    deliver: {tool: helpdesk.create_ticket, arguments: {title: paid, body: $payload}}\n",
	keys: []key[contract.HookTool]{
		{"tool", text(func(d *contract.HookTool) *string { return &d.Tool }),
			"", "The capability, in full. Its contract decides each call.", "internal/core/policy"},
		{"arguments", leaf(anyShape, (*parser).object, func(d *contract.HookTool) *map[string]any { return &d.Args }),
			"{}", "The arguments of the call.", "internal/feature/webhook"},
	},
	check: func(p *parser, f field, d *contract.HookTool, _ map[string]field) {
		if !contract.Name(d.Tool) {
			p.Fail(f.Val, "key.missing", "as in deliver: {tool: helpdesk.create_ticket}", "deliver wants the name of one tool")
		}
	},
}

var hookWords = strictyaml.OneOf("agent")

func (p *parser) hook(e field) {
	w := contract.Webhook{Name: e.Name, At: p.At(e.Key)}
	if !isLabel(e.Name) {
		p.Fail(e.Key, "value.name", "letters, digits, - and _, beginning with a letter", "a webhook cannot be named %q",
			contract.Cut(e.Name, 40))
	}
	p.user = "webhook " + e.Name
	hook.read(p, e, &w)
	p.cfg.Webhooks[e.Name] = w
}
