package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/core/approval"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/display"
	"waldo/internal/pkginstall"
	"waldo/internal/storage/sandboxes"
	"waldo/internal/storage/workspace"
)

// keptFor is the retention of unused session files, of unanswered questions, and of packages that no lock names.
// Named sandboxes keep their files until they are removed.
const keptFor = 30 * 24 * time.Hour

// sweep closes idle sessions and deletes data past its retention.
func (h *application) sweep(ctx context.Context, now time.Time, sign signing) error {
	h.sessions.Sweep()
	named, err := sandboxes.New(h.store, time.Now).Workspaces(ctx)
	if err != nil {
		return err // without the names, unused workspaces are unknown
	}
	open := map[string]bool{}
	for _, n := range h.sessions.List() {
		open[n.Workspace] = true
	}
	_, err = workspace.Sweep(filepath.Join(h.state, "workspaces"), now.Add(-keptFor), func(w string) bool { return named[w] || open[w] })
	_, unused := pkginstall.Sweep(filepath.Join(h.state, "packages"), now, now.Add(-keptFor), h.packages.Accepted())
	_, old := h.log.Prune(ctx, h.cfg.Log.Keep, string(principal()), sign)
	bundles := sandboxegress.Sweep(h.state, now)
	return errors.Join(err, unused, old, bundles, h.approvals.Sweep(ctx, now.Add(-keptFor)))
}

// signing adds the first approver's signature to a removal from the log; nil: no person can sign.
type signing func(*approval.Checkpoint) error

// signRemoval asks the first approver for the passphrase, and shows who can answer afterwards.
func (h *application) signRemoval(c *cobra.Command) signing {
	return func(p *approval.Checkpoint) error {
		pins := []string{h.cfg.Approval.Root, os.Getenv(rootVariable)}
		if pins[0] == "" && pins[1] == "" {
			return &exit{code: exitUsage, text: "the log names approvers, and the configuration names no approval.root", hint: "waldo approve --enroll printed the line when the first was enrolled"}
		}
		var root approval.Approver
		var none error
		if err := h.witness.Look(c.Context(), func(l *approval.Ledger) { root, none = l.Root(pins) }); err != nil || none != nil {
			return errors.Join(err, none)
		}
		w := c.ErrOrStderr()
		display.Fprintf(w, "The log is removed up to record %d. Unused approvals become void. Remaining approvers:\n", p.Through)
		for _, e := range p.Approvers {
			display.Fprintf(w, "  %s %s, signed by %s at %s\n", e.Action, e.Approver, e.By, e.At)
		}
		pass, err := passphrase(c, "passphrase of "+root.Name+": ")
		if err != nil {
			return err
		}
		by, err := h.approvals.Unseal(root.Name, pass)
		if err != nil {
			return &exit{code: exitWaiting, err: err}
		}
		return p.Sign(by, root, time.Now())
	}
}

// keepClean sweeps now, and hourly until ctx is done. It logs an entry that it cannot delete, and keeps it.
func (h *application) keepClean(ctx context.Context) {
	sweep := func() {
		if err := h.lives.inForce().sweep(ctx, time.Now(), nil); err != nil && ctx.Err() == nil {
			slog.Warn("cleaning up", "why", err)
		}
	}
	sweep()
	go func() {
		hourly := time.NewTicker(time.Hour)
		defer hourly.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hourly.C:
				sweep()
			}
		}
	}()
}
