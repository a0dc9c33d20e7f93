package main

import (
	"encoding/json"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// watchEvery is the interval between polls of the questions.
const watchEvery = 250 * time.Millisecond

// approvalEvent is one line of `waldo approvals --watch --json`.
type approvalEvent struct {
	Event    string             `json:"event"` // "asked", or "closed": answered, expired, or its caller is gone
	ID       string             `json:"approval_id"`
	State    approval.State     `json:"state"`
	Question *approval.Question `json:"question,omitempty"` // with "asked"
}

// watchApprovals prints each new question, and how it ended, until the context ends.
func watchApprovals(c *cobra.Command, k *approval.Service, whole, asJSON bool) error {
	open := map[string]approval.Question{}
	for {
		all, err := k.Pending(c.Context())
		if c.Context().Err() != nil {
			return terminal.ErrInterrupted
		}
		if err != nil {
			return err
		}
		now := map[string]approval.Question{}
		for _, q := range all {
			now[q.ID] = q
			if _, known := open[q.ID]; !known {
				q = k.Since(c.Context(), q)
				tellWatched(c, approvalEvent{"asked", q.ID, approval.Pending, &q}, whole, asJSON)
			}
		}
		for id := range open {
			if _, still := now[id]; still {
				continue
			}
			_, state, err := k.Question(c.Context(), id)
			if err != nil {
				state = approval.Gone
			}
			tellWatched(c, approvalEvent{"closed", id, state, nil}, whole, asJSON)
		}
		if open = now; !wait(c.Context(), watchEvery) {
			return terminal.ErrInterrupted
		}
	}
}

func tellWatched(c *cobra.Command, e approvalEvent, whole, asJSON bool) {
	w := c.OutOrStdout()
	switch q := e.Question; {
	case asJSON:
		b, _ := json.Marshal(e) // plain fields only
		display.Fprintf(w, "%s\n", display.Text(display.JSON(b)))
	case q == nil:
		display.Fprintf(w, "%s  %s\n", e.ID, e.State)
	case whole:
		terminal.Question(w, *q)
		display.Fprintf(w, "\n")
	default:
		display.Fprintf(w, "%s", terminal.Fit(w, string(display.Sprintf("%s  %s  danger %d  %s  %s\n", q.ID, q.Capability,
			q.Danger, q.Principal, terminal.Brief(string(q.Args), 60)))))
	}
}

// tooLate records an answer that came after the last call that could use it.
func tooLate(c *cobra.Command, g *cli.Context, q approval.Question, yes bool, code, why string) error {
	state, _, err := g.Configured()
	if err != nil {
		return err
	}
	return app.TooLate(c.Context(), state, q, yes, code, why)
}
