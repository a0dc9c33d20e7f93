package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"

	"waldo/internal/app/control"
	"waldo/internal/app/fault"
	"waldo/internal/core/session"
	"waldo/internal/model/contract"
)

// TakesReloads lets the application reload its configuration on request. fits refuses a configuration that this
// process cannot serve.
func (h *App) TakesReloads(fits func(next *App) error) {
	h.attendant.TakeReloads(func(ctx context.Context, o control.Order) control.Reply {
		r := control.Reply{PID: os.Getpid(), Serves: true}
		if o.ID != "" && o.At.Before(h.began) && h.lives.inForce() == h { // this process read the files after the order
			r.Said = fmt.Sprintf("%s (%s)", OrNone(h.Config.File), h.Config.Digest)
			return r
		}
		next, err := h.successor(ctx, fits)
		was := h.lives.inForce().Config
		if err != nil {
			r.Kept = h.known.Text(err.Error())
			slog.Warn("the new configuration is not taken; the one before it stays in force", "file", was.File, "why", err)
			control.Record(ctx, h.Log, control.KindReload, map[string]any{
				"file": was.File, "taken": false, "why": r.Kept, "in_force": was.Digest, "by": Principal(),
			})
			return r
		}
		next.inherit(h.lives.inForce())
		h.lives.change(next)
		h.Sessions.Bound(session.Budgets(next.Config.Sessions))
		r.Said = fmt.Sprintf("%s (%s)", OrNone(next.Config.File), next.Config.Digest)
		slog.Info("a new configuration is in force", "file", next.Config.File, "digest", next.Config.Digest)
		if !reflect.DeepEqual(fixed(was.Gateway), fixed(next.Config.Gateway)) {
			r.Said += "; changes of gateway other than auth.tokens need a new start"
			slog.Warn("changes of gateway other than auth.tokens need a new start of this waldo serve")
		}
		control.Record(ctx, h.Log, control.KindReload, map[string]any{
			"file": next.Config.File, "taken": true, "in_force": next.Config.Digest, "before": was.Digest, "by": Principal(),
		})
		return r
	})
}

// fixed returns the gateway settings that only a restart changes.
func fixed(g contract.Gateway) contract.Gateway {
	g.Tokens = nil
	return g
}

func OrNone(file string) string {
	if file == "" {
		return "no configuration"
	}
	return file
}

// successor opens an application for the current configuration. It shares the services that survive a reload.
func (h *App) successor(ctx context.Context, fits func(next *App) error) (*App, error) {
	s := h.set
	s.after, s.Cfg = h, nil
	next, err := New(ctx, s)
	if err != nil {
		return nil, err
	}
	err = next.RequireSecrets(false)
	// A deleted file must not select a looser configuration.
	if was := h.lives.inForce().Config.File; err == nil && was != "" && next.Config.File != was {
		err = fault.Usage("bring it back", "%s is gone; waldo would load %s instead", was, OrNone(next.Config.File))
	}
	if err == nil {
		err = fits(next)
	}
	if err != nil {
		_ = next.Close() // no client used it
		return nil, err
	}
	return next, nil
}
