// Package reliability is waldo settle and waldo undo: it finds out whether calls with an unknown outcome happened, and
// undoes calls. The pipeline's part is internal/core/effects.
package reliability

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/core/session"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/storage/presence"
)

// Feature is settlement and undo.
var Feature = feature.Feature{
	Name:     "reliability",
	Open:     open,
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newSettle(g), newUndo(g)} },
	Records:  records.Lines{audit.KindSettled: line},
}

// channel is that of the reads that waldo makes by itself.
const channel = "cli"

// open records the outcomes of calls whose process was killed. While waldo serves hosts, it settles what is open.
func open(h *app.App) (app.Running, error) {
	if err := recordKilled(context.Background(), h); err != nil {
		return app.Running{}, err
	}
	sessions := h.SharedSessions("")
	return app.Running{
		Work: func(ctx context.Context) {
			defer sessions.Close()
			settlePending(ctx, h.Effects, sessions)
		},
		Sweep: func(ctx context.Context, _ time.Time) error { return h.Effects.Sweep(ctx) },
	}, nil
}

// recordKilled records the outcomes of calls whose process was killed while they were under way: what the book
// remembers first, and then that all others are unknown. The order matters: an outcome of the second kind binds no row.
func recordKilled(ctx context.Context, h *app.App) (err error) {
	killed := presence.Killed(h.Store)
	names := make([]string, len(killed))
	for i, p := range killed {
		names[i] = p.Name
		defer func() {
			if err != nil {
				p.Leave() // for the next waldo
			}
			_ = p.Close()
		}()
	}
	if err := h.Effects.Recover(ctx, names); err != nil || len(names) == 0 {
		return err
	}
	open, err := audit.UnderWay(ctx, audit.Dir(h.State), names)
	log := &audit.Recorder{Log: h.Log}
	for _, d := range open {
		r := effects.Killed(d.Call.ID, d.ID)
		var failed error
		if d.Effect == policy.Ask {
			r.Facts.SideEffect = facts.None
		}
		if k := (policy.Decision{Contract: h.Effects.Contract(d.Call.Capability)}); !k.Tracked() { // else it never began
			r.Row, failed = h.Effects.Lost(ctx, d, r, false)
		}
		if failed == nil {
			_, failed = log.Outcome(ctx, d, r)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// settlePending settles the calls that an earlier waldo left open, each as its own caller. Those that can be settled
// soonest come first.
func settlePending(ctx context.Context, b *effects.Book, sessions *session.Shared) {
	all, err := b.Pending(ctx)
	slices.SortStableFunc(all, func(a, c *effects.Entry) int { return cmp.Compare(b.Early(a), b.Early(c)) })
	for _, e := range all {
		select {
		case <-time.After(b.Early(e)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		n, enterErr := sessions.Enter(e.Principal)
		if enterErr != nil {
			err = errors.Join(err, enterErr)
			continue
		}
		as := call.Call{Session: n, Principal: e.Principal, Channel: channel}
		if _, settleErr := b.Settle(ctx, e.ID, as); settleErr != nil && !errors.Is(settleErr, effects.ErrNoSettle) &&
			!errors.Is(settleErr, effects.ErrOther) {
			err = errors.Join(err, settleErr)
		}
		sessions.Leave(n)
	}
	if err != nil {
		slog.Warn("settling calls with an unknown outcome", "why", err)
	}
}

// line shows a settlement in one line of waldo log.
func line(p terminal.Paint, body json.RawMessage) display.Text {
	var s effects.Settlement
	_ = json.Unmarshal(body, &s)
	word := p.Good(string(s.Settled))
	if s.Settled == call.StillUnknown {
		word = p.Bad(string(s.Settled))
	}
	text := display.Sprintf("%s %s of %s, by %s", word, s.CallID, s.Capability, s.By)
	if s.Why != "" {
		text += display.Sprintf(": %s", s.Why)
	}
	return text
}
