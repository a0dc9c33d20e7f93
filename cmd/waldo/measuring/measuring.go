// Package measuring is waldo du.
package measuring

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/disk"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// New returns the command. state opens the state directory; asJSON says whether --json was given.
func New(state func() (string, error), asJSON *bool) *cobra.Command {
	var list bool
	c := &cobra.Command{
		Use: "du [--programs]", Short: "List the parts of the state directory, the largest first", Args: cobra.NoArgs,
		Long: "Lists the parts of the state directory with their sizes. --programs lists the suspended programs that wait " +
			"for a\nhuman instead. waldo stop SESSION removes those of a session, and waldo prune those older than 30 days.",
		Example: "  waldo du\n  waldo du --programs\n  waldo du --json",
		RunE: func(c *cobra.Command, _ []string) error {
			at, err := state()
			if err != nil {
				return err
			}
			if list {
				return tellPrograms(c, at, *asJSON)
			}
			return tellParts(c, at, *asJSON)
		},
	}
	c.Flags().BoolVar(&list, "programs", false, "list suspended programs: id, age, size, session and questions")
	return c
}

func tellParts(c *cobra.Command, state string, asJSON bool) error {
	all, total, err := disk.Used(state)
	if err != nil {
		return err
	}
	if asJSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{
			"state": state, "bytes": total.Bytes, "files": total.Files, "parts": all,
		})
	}
	display.Fprintf(c.OutOrStdout(), "%10s %8s  %-12s %s\n", "SIZE", "FILES", "NAME", "WHAT")
	for _, p := range append(all, total) {
		display.Fprintf(c.OutOrStdout(), "%10s %8d  %-12s %s\n", Sized(p.Bytes), p.Files, p.Name, p.What)
	}
	return nil
}

func tellPrograms(c *cobra.Command, state string, asJSON bool) error {
	s, err := app.OpenStorage(state)
	if err != nil {
		return err
	}
	all, err := s.Programs().List()
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	if asJSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{"programs": all})
	}
	w := c.OutOrStdout()
	if len(all) == 0 {
		display.Fprintf(w, "no program is suspended\n")
		return nil
	}
	display.Fprintf(w, "%-28s %8s %10s  %-15s %-28s %s\n", "PROGRAM", "AGE", "SIZE", "CAPABILITY", "SESSION", "WAITS FOR")
	for _, p := range all {
		display.Fprintf(w, "%-28s %8s %10s  %-15s %-28s %s\n", p.ID, age(time.Since(p.At)), Sized(p.Bytes), p.Capability,
			p.Session, p.Waits())
	}
	return nil
}

// age writes a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(0, d/time.Second))
}

// Sized writes a number of bytes for a person.
func Sized(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	x, i := float64(n), 0
	for x >= 1000 && i < len(units)-1 {
		x, i = x/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[i])
}
