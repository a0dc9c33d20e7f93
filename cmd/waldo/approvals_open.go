package main

import (
	"context"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/core/approval"
)

// onRecord opens the same for a change of who may answer, which goes to the log.
func onRecord(ctx context.Context, g *cli.Context) (*approval.Service, func() error, error) {
	state, cfg, err := g.Configured()
	if err != nil {
		return nil, nil, err
	}
	return app.ApprovalsOnRecord(ctx, state, cfg)
}

// asksUnder reports whether the configuration that is read here is the one that a question was asked under,
// as far as that can be told.
func asksUnder(g *cli.Context, q approval.Question) bool {
	state, cfg, err := g.Configured()
	return err != nil || app.AskedUnder(state, cfg, q)
}
