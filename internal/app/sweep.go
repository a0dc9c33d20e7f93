package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/pkginstall"
	"waldo/internal/storage/workspace"
)

// Retention is the retention of unused session files, of unanswered questions, and of packages that no lock names.
// Named sandboxes keep their files until they are removed.
const Retention = 30 * 24 * time.Hour

// Sweep closes idle sessions and deletes data past its retention.
func (h *App) Sweep(ctx context.Context, now time.Time, sign Signing) error {
	h.Sessions.Sweep()
	named, err := h.NamedSandboxes().Workspaces(ctx)
	if err != nil {
		return err // without the names, unused workspaces are unknown
	}
	open := map[string]bool{}
	for _, n := range h.Sessions.List() {
		open[n.Workspace] = true
	}
	_, err = workspace.Sweep(filepath.Join(h.State, "workspaces"), now.Add(-Retention),
		func(w string) bool { return named[w] || open[w] })
	_, unused := pkginstall.Sweep(filepath.Join(h.State, "packages"), now, now.Add(-Retention), h.Packages.Accepted())
	_, old := h.Log.Prune(ctx, h.Config.Log.Keep, string(Principal()), sign)
	h.Programs().Sweep(now)
	bundles := sandboxegress.Sweep(h.State, now)
	return errors.Join(err, unused, old, bundles, h.Approvals.Sweep(ctx, now.Add(-Retention)), h.sweepFeatures(ctx, now))
}

// Signing adds the first approver's signature to a removal from the log; nil: no person can sign.
type Signing func(*approval.Checkpoint) error

// KeepClean sweeps now, and hourly until ctx is done. It logs an entry that it cannot delete, and keeps it.
func (h *App) KeepClean(ctx context.Context) {
	sweep := func() {
		if err := h.lives.inForce().Sweep(ctx, time.Now(), nil); err != nil && ctx.Err() == nil {
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

// Prunable returns the part of the log that is older than log.keep.
func (h *App) Prunable(ctx context.Context) (audit.Pruned, error) {
	if h.Config.Log.Keep == 0 {
		return audit.Pruned{}, nil
	}
	return audit.Prunable(ctx, audit.Dir(h.State), LogOptions(h.Store), time.Now().Add(-h.Config.Log.Keep))
}
