// Package agent is the built-in agent: a loop over language models whose calls go through the pipeline.
package agent

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/advice"
	"waldo/internal/app/health"
	"waldo/internal/cli"
	"waldo/internal/core/policy"
	"waldo/internal/feature"
	"waldo/internal/feature/agent/agentrun"
	"waldo/internal/feature/agent/provider"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// Feature is waldo agent.
var Feature = feature.Feature{
	Name:     "agent",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newAgent(g)} },
	Check:    check,
	Open:     func(h *app.App) (app.Running, error) { return app.Running{Agent: agentrun.New(h)}, nil },
	Doctor:   doctor,
}

// check warns of an agent without a tool.
func check(_ context.Context, place app.Place, p *policy.Policy) (problems, warnings contract.Problems) {
	cfg := place.Config
	if len(cfg.Agent.Providers) == 0 {
		return nil, nil
	}
	for range advice.Contracts(cfg, p) {
		return nil, nil
	}
	return nil, contract.Problems{{At: contract.Position{File: cfg.File, Line: 1, Column: 1}, Code: "agent.tools",
		Text: "agent: has no tool, because no contract allows one",
		Hint: "write a contract under capabilities, such as run_python: {mode: high_risk, approval: none}"}}
}

// doctor checks the key and the address of each model.
func doctor(ctx context.Context, p app.Place) (out []sandbox.Ability) {
	for i, m := range p.Config.Agent.Providers {
		out = append(out, p.Ability(fmt.Sprintf("model %d, %s", i+1, m.Model), "its key is there, and its address answers",
			reach(ctx, p, m), "set the key or the URL of this entry of agent.providers; waldo secret check"))
	}
	return out
}

func reach(ctx context.Context, p app.Place, m contract.Provider) error {
	if m.Key != "" {
		if _, err := p.Secret(m.Key); err != nil {
			return err
		}
	}
	return health.Reach(ctx, provider.Address(m.Kind, m.URL))
}
