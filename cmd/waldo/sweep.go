package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/install"
	"waldo/internal/lifecycle"
	"waldo/internal/workspace"
)

// keptFor is how long the files of a session stay that nobody opened, a question that nobody answered in
// time, and an installed package that no lock has named. Named sandboxes keep theirs until they are removed.
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
	_, unused := install.Sweep(filepath.Join(h.state, "packages"), now, now.Add(-keptFor), h.accepted())
	return errors.Join(err, unused, h.approvals.Sweep(ctx, now.Add(-keptFor)))
}

// accepted are the packages that waldo.lock names.
func (h *house) accepted() []*install.Pin {
	return slices.DeleteFunc(slices.Collect(maps.Values(h.pins)), func(p *install.Pin) bool { return p == nil })
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
