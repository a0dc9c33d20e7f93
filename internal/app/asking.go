package app

import (
	"context"
	"slices"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// asking is what the approval service knows of the calls of an application. It satisfies approval.Calls.
type asking struct {
	h        *App
	patience time.Duration // of a person at this terminal; 0: there is none
}

// Rules satisfies approval.Calls.
func (a asking) Rules() contract.Approvals { return a.h.lives.rules() }

// WaitTimeout satisfies approval.Calls.
func (a asking) WaitTimeout(channel string) time.Duration {
	if channel == "mcp" && slices.Contains(a.Rules().Carriers, contract.Elicitation) {
		return a.patience // the host is asked at once
	}
	if channel == "bridge" && a.patience > 0 { // a person waits; the script's clock is paused
		return bridgePatience
	}
	return max(a.patience, patience[channel])
}

// Notes satisfies approval.Calls.
func (a asking) Notes(d policy.Decision) []string { return a.h.lives.notes(d) }

// Preview satisfies approval.Calls.
func (a asking) Preview(ctx context.Context, d policy.Decision) []string {
	return a.h.lives.preview(ctx, d)
}

// Begun satisfies approval.Calls.
func (a asking) Begun(ctx context.Context, d policy.Decision) (name string, begun bool, err error) {
	return a.h.Effects.Begun(ctx, d)
}

// Asker satisfies approval.Calls.
func (a asking) Asker(n call.Session) string { return a.h.askerOf(n) }
