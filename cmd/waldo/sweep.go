package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"waldo/internal/lifecycle"
	"waldo/internal/workspace"
)

// keptFor is how long the files of a session stay that nobody opened, and a question that nobody
// answered in time. Named sandboxes keep theirs until they are removed.
const keptFor = 30 * 24 * time.Hour

// sweep closes sessions that are idle and deletes what is kept no longer.
func (h *house) sweep(ctx context.Context, now time.Time) error {
	h.sessions.Sweep()
	named, err := lifecycle.New(h.store, time.Now).Workspaces(ctx)
	if err != nil {
		return err // without their names no workspace is known to be nobody's
	}
	open := map[string]bool{}
	for _, n := range h.sessions.List() {
		open[n.Workspace] = true
	}
	_, err = workspace.Sweep(filepath.Join(h.state, "workspaces"), now.Add(-keptFor), func(w string) bool { return named[w] || open[w] })
	return errors.Join(err, h.approvals.Sweep(ctx, now.Add(-keptFor)))
}

// keepClean sweeps now, and once an hour until ctx is done. What cannot be deleted is told and kept.
func (h *house) keepClean(ctx context.Context) {
	sweep := func() {
		if err := h.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
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
