package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"

	"github.com/spf13/cobra"

	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// takesReloads lets the application reload its configuration on request. fits refuses a configuration that this
// process cannot serve.
func (h *application) takesReloads(g *global, fits func(next *application) error) {
	h.attendant.mu.Lock()
	defer h.attendant.mu.Unlock()
	h.attendant.reload = func(ctx context.Context) reply {
		r := reply{PID: os.Getpid(), Serves: true}
		next, err := h.successor(ctx, g, fits)
		was := h.lives.inForce().cfg
		if err != nil {
			r.Kept = h.known.Text(err.Error())
			slog.Warn("the new configuration is not taken; the one before it stays in force", "file", was.File, "why", err)
			h.record(ctx, kindReload, map[string]any{"file": was.File, "taken": false, "why": r.Kept, "in_force": was.Digest, "by": principal()})
			return r
		}
		next.inherit(h.lives.inForce())
		h.lives.change(next)
		r.Said = fmt.Sprintf("%s (%s)", orNone(next.cfg.File), next.cfg.Digest)
		slog.Info("a new configuration is in force", "file", next.cfg.File, "digest", next.cfg.Digest)
		if !reflect.DeepEqual(fixed(was.Gateway), fixed(next.cfg.Gateway)) {
			r.Said += "; changes of gateway other than auth.tokens need a new start"
			slog.Warn("changes of gateway other than auth.tokens need a new start of this waldo serve")
		}
		h.record(ctx, kindReload, map[string]any{"file": next.cfg.File, "taken": true, "in_force": next.cfg.Digest, "before": was.Digest, "by": principal()})
		return r
	}
}

// fixed returns the gateway settings that only a restart changes.
func fixed(g contract.Gateway) contract.Gateway {
	g.Tokens = nil
	return g
}

func orNone(file string) string {
	if file == "" {
		return "no configuration"
	}
	return file
}

// successor opens an application for the current configuration. It shares the services that survive a reload.
func (h *application) successor(ctx context.Context, g *global, fits func(next *application) error) (*application, error) {
	s := h.set
	s.after, s.cfg = h, nil
	next, err := openApplication(ctx, g, s)
	if err != nil {
		return nil, err
	}
	err = next.requireSecrets()
	// A deleted file must not select a looser configuration.
	if was := h.lives.inForce().cfg.File; err == nil && was != "" && next.cfg.File != was {
		err = usage("bring it back", "%s is gone; waldo would load %s instead", was, orNone(next.cfg.File))
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

func newReload(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Take the configuration anew into every running waldo serve of this state directory", Args: cobra.NoArgs,
		Long: "Each waldo serve of the state directory reads its own configuration file again, as at its start: with its own flags,\n" +
			"and one that was only found has to be trusted in its new form. Calls under way end under the contracts that they\n" +
			"began with; hosts stay connected and are told that their lists have changed. A configuration that cannot be taken\n" +
			"leaves the one before it in force. SIGHUP does the same for one process. Exit status 1: one was not taken.",
		Example: "  waldo reload",
		RunE: func(c *cobra.Command, _ []string) error {
			state, s, err := openStore(g)
			if err != nil {
				return err
			}
			defer s.Close()
			replies, silent, err := putOrder(c.Context(), s, reloadOrder)
			if err != nil {
				return err
			}
			if g.json {
				if err := printJSON(c.OutOrStdout(), map[string]any{"replies": replies, "silent": silent}); err != nil {
					return err
				}
			}
			serve, kept := 0, 0
			for _, r := range replies {
				switch {
				case !r.Serves:
					continue
				case r.Kept != "":
					kept++
					display.Fprintf(c.ErrOrStderr(), "%s keeps the configuration that it has: %s\n", r.who(), display.Lines(r.Kept))
				case !g.json:
					display.Fprintf(c.OutOrStdout(), "%s took %s\n", r.who(), r.Said)
				}
				serve++
			}
			if serve == 0 && silent == 0 {
				display.Fprintf(c.ErrOrStderr(), "no waldo serve runs on %s\n", state)
			}
			return unheeded(kept, silent)
		},
	}
}

// unheeded returns the error of an order that some waldo did not carry out.
func unheeded(kept, silent int) error {
	switch {
	case silent > 0:
		return &exit{code: exitProblems, text: display.Count(silent, "waldo process") + " did not answer in time", hint: "it may hang or be suspended: look for it, and end it if need be"}
	case kept > 0:
		return &exit{code: exitProblems, text: "the new configuration is not in force everywhere", hint: "waldo check shows where and how; waldo trust records a file that was found"}
	}
	return nil
}
