package config

import (
	"time"

	"waldo/internal/config/strictyaml"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

var agent = &mapping[contract.Agent]{
	name: "agent",
	doc: "The agent of `waldo agent`. It reaches the world only through the contracts of this file, as the principal " +
		"`agent:NAME`.\n[agent.md](../agent.md) describes it.",
	example: "agent:\n  providers:\n    - {kind: anthropic, model: claude-sonnet-4-5, key: \"env:ANTHROPIC_API_KEY\"}\n" +
		"    - {kind: ollama, model: \"qwen2.5:7b\"}\n  max_steps: 30\n",
	begin: func(p *parser, _ field, _ *contract.Agent) { p.user = "agent" },
	keys: []key[contract.Agent]{
		{"name", or("waldo", label(func(a *contract.Agent) *string { return &a.Name })),
			"", "The name in its principal, agent:NAME.", "internal/feature/agent/agentrun"},
		{"providers", list(provider, "providers", `as in [{kind: ollama, model: "qwen2.5:7b"}]`,
			func(a *contract.Agent) *[]contract.Provider { return &a.Providers }),
			"none; `waldo agent` refuses to start", "The language models, in the order in which they are asked.",
			"internal/feature/agent/provider"},
		{"max_steps", or("30", whole(1, 10_000, func(a *contract.Agent) *int { return &a.MaxSteps })),
			"", "How many answers of the model one conversation has.", "internal/feature/agent/loop"},
		{"max_tokens", or("500000", whole(1, 1_000_000_000, func(a *contract.Agent) *int { return &a.MaxTokens })),
			"", "How many tokens one conversation uses, requests and answers together, as the providers count them.",
			"internal/feature/agent/loop"},
		{"timeout", or("30m", duration(24*time.Hour, func(a *contract.Agent) *time.Duration { return &a.Timeout })),
			"", "How long one run takes at most; waldo agent --resume goes on.", "internal/feature/agent/loop"},
		{"system", text(func(a *contract.Agent) *string { return &a.System }),
			"none", "Your instructions to the model, after waldo's own.", "internal/feature/agent/loop"},
		{"tasks", leaf(pairsShape, (*parser).tasks, func(a *contract.Agent) *map[string]string { return &a.Tasks }),
			"do as system says", "Webhook to the task of waldo agent --serve for it; the payload follows as data.",
			"internal/feature/agent/agentrun"},
		{"a2a", nested(agentExposed, func(a *contract.Agent) *contract.Agent { return a }),
			"not exposed", "Whether agents elsewhere can give it tasks over A2A.", "internal/feature/a2a"},
	},
	check: func(p *parser, f field, a *contract.Agent, at map[string]field) {
		if a.Expose && len(a.Providers) == 0 {
			p.Fail(at["a2a"].Val, "key.missing", `as in [{kind: ollama, model: "qwen2.5:7b"}]`,
				"an exposed agent wants providers")
		}
	},
}

var agentExposed = &mapping[contract.Agent]{
	name: "agent.a2a", title: "a2a",
	doc:     "A task has the authority of its caller and of the agent, the stricter of both: [a2a.md](../a2a.md).",
	example: "agent:\n  providers: [{kind: ollama, model: \"qwen2.5:7b\"}]\n  a2a: {expose: true}\n",
	keys: []key[contract.Agent]{
		{"expose", boolean(func(a *contract.Agent) *bool { return &a.Expose }), "false",
			"The agent card lists it as the skill agent:NAME.", "internal/feature/a2a"},
	},
}

var provider = &mapping[contract.Provider]{
	name: "provider", title: "a provider",
	doc:     "A language model. Its host is the only one that waldo asks for it, and no redirect is followed.",
	example: "agent:\n  providers:\n    - {kind: openai, url: \"https://llm.example.com/v1\", model: mine, key: llm_key}\n",
	begin:   func(p *parser, f field, r *contract.Provider) { r.At = p.At(f.Val) },
	keys: []key[contract.Provider]{
		{"kind", word(strictyaml.OneOf("anthropic", "openai", "ollama"),
			func(r *contract.Provider) *string { return &r.Kind }),
			"", "The API: Anthropic Messages, chat completions as OpenAI has them, or Ollama.",
			"internal/feature/agent/provider"},
		{"url", address(func(r *contract.Provider) *string { return &r.URL }),
			"https://api.anthropic.com, https://api.openai.com/v1 or http://127.0.0.1:11434",
			"The address of the API: https, or http on this machine.", "internal/feature/agent/provider"},
		{"model", text(func(r *contract.Provider) *string { return &r.Model }),
			"", "The model, as the provider names it.", "internal/feature/agent/provider"},
		{"key", ref(func(r *contract.Provider) *secret.Ref { return &r.Key }),
			"no key is sent", "The secret that holds the API key.", "internal/feature/agent/provider"},
		{"timeout", or("2m", duration(30*time.Minute, func(r *contract.Provider) *time.Duration { return &r.Timeout })),
			"", "How long the provider may be silent before waldo gives up the request.", "internal/feature/agent/provider"},
	},
	check: func(p *parser, f field, r *contract.Provider, at map[string]field) {
		for _, k := range []string{"kind", "model"} {
			if _, written := at[k]; !written {
				p.Fail(f.Val, "key.missing", `as in {kind: ollama, model: "qwen2.5:7b"}`, "a provider wants a %s", k)
			}
		}
	},
}

func (p *parser) tasks(f field) map[string]string {
	out := map[string]string{}
	for _, e := range p.Entries(f) {
		out[e.Name] = p.Text(e)
	}
	return out
}
