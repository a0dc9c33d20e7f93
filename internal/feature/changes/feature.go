// Package changes lists what runs change below their writable mounts, holds it for review, and takes it back.
package changes

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/feature"
)

// Feature is waldo changes.
var Feature = feature.Feature{
	Name:     "changes",
	Open:     open,
	Commands: func(c *cli.Context) []*cobra.Command { return []*cobra.Command{newCommand(c)} },
}

func open(h *app.App) (app.Running, error) {
	s := In(h.State)
	h.Runner.Changes = s
	return app.Running{Sweep: func(_ context.Context, now time.Time) error { return s.sweep(now.Add(-app.Retention)) }}, nil
}

// In returns the changes of a state directory.
func In(state string) *Store { return &Store{dir: filepath.Join(state, "changes")} }
