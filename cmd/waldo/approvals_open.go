package main

import (
	"context"

	"waldo/internal/app"
	"waldo/internal/core/approval"
)

// openApprovals opens the approval service without the rest of the application.
func openApprovals(g *global) (*approval.Service, func() error, error) {
	state, cfg, err := configured(g)
	if err != nil {
		return nil, nil, err
	}
	return app.Approvals(state, cfg)
}

// onRecord opens the same for a change of who may answer, which goes to the log.
func onRecord(ctx context.Context, g *global) (*approval.Service, func() error, error) {
	state, cfg, err := configured(g)
	if err != nil {
		return nil, nil, err
	}
	return app.ApprovalsOnRecord(ctx, state, cfg)
}

// asksUnder reports whether the configuration that is read here is the one that a question was asked under,
// as far as that can be told.
func asksUnder(g *global, q approval.Question) bool {
	_, cfg, err := configured(g)
	return err != nil || app.AskedUnder(cfg, q)
}
