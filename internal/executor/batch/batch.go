// Package batch carries out request_approval: the yes of a human to several calls takes force.
package batch

import (
	"context"

	"waldo/internal/core/grant"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// Executor puts a granted request in force. Begin is ceiling.Service's.
type Executor struct {
	Begin func(decisionID string) (text string, ok bool)
}

// Execute redeems the grant. The calls that it allows come later, each with a decision of its own.
func (e Executor) Execute(_ context.Context, g *grant.Grant) (call.Outcome, error) {
	d, err := g.Redeem()
	if err != nil {
		return call.Outcome{}, err
	}
	f := facts.New()
	f.SideEffect = facts.None
	text, ok := e.Begin(d.ID)
	if f.Status = facts.OK; !ok {
		f.Status, text = facts.Failed,
			"the approval cannot be used for several calls: too many are open, or no approver has signed it"
	}
	return call.Outcome{Content: []call.Content{call.Text(text)}, IsError: !ok, Facts: f}, nil
}
