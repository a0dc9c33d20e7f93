package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Teller is the approval carrier that prints questions to the terminal of the process that asks.
type Teller struct{ W io.Writer }

// Name satisfies approval.Notifier.
func (t Teller) Name() string { return approval.Terminal }

// Notify satisfies approval.Notifier. A terminal gets the whole question, other outputs one line.
func (t Teller) Notify(_ context.Context, q approval.Question) {
	patience := ""
	if d := time.Until(q.Until).Round(time.Second); d > 0 {
		patience = d.String()
		if strings.HasSuffix(patience, "m0s") {
			patience = strings.TrimSuffix(patience, "0s")
		}
		patience = "; waiting up to " + patience
	}
	if !terminal.OnScreen(t.W) {
		display.Fprintf(t.W, "waldo: %s waits for a human: waldo approve %s, or waldo deny %s%s\n", q.Capability, q.ID, q.ID,
			patience)
		return
	}
	display.Fprintf(t.W, "\n")
	terminal.Question(t.W, q)
	display.Fprintf(t.W, "%s", terminal.Fit(t.W,
		"answer in another terminal: waldo approve "+q.ID+"   or   waldo deny "+q.ID+patience+"\n"))
}
