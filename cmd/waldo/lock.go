package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newLock(g *cli.Context) *cobra.Command {
	var accept, show []string
	fresh := false
	c := &cobra.Command{
		Use:   "lock [--show NAME..] [--accept NAME..]",
		Short: "Pin the definitions of upstream tools, prompts and templates; show what changed",
		Long: "A server that cannot be checked keeps its entry in waldo.lock; the others are compared all the same.\n" +
			"The entry of a server that is no longer configured stays until you accept its removal.\n" +
			"With --accept only the named servers are checked.\n" +
			"Exit code: 0 when every checked server matches waldo.lock, 1 otherwise.",
		Example: "  waldo lock\n  waldo lock --show helpdesk\n  waldo lock --accept helpdesk drive",
		Args: func(_ *cobra.Command, args []string) error { // they follow --accept
			if len(args) > 0 && len(accept)+len(show) == 0 {
				return fmt.Errorf("%q: names of servers stand after --show or --accept", args[0])
			}
			if len(accept) > 0 && len(show) > 0 {
				return errors.New("--show or --accept, not both: --accept shows what is new, too")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(show) > 0 {
				show = append(show, args...)
			} else {
				accept = append(accept, args...)
			}
			h, err := g.Open(c.Context(), app.Options{Tells: true, Relocks: true})
			if err != nil {
				return err
			}
			defer h.Close()
			h.Packages.Fresh = fresh
			if len(show) > 0 {
				return printLock(c, h, g, show)
			}
			changes, err := compareLock(c, h, accept)
			if err != nil {
				return err
			}
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), changes); err != nil {
					return err
				}
			} else {
				for _, ch := range changes {
					if ch.Code == app.Unseen {
						display.Fprintf(c.ErrOrStderr(), "waldo: server %s: %s\n", ch.Server, display.Lines(ch.Text))
						continue
					}
					display.Fprintf(c.OutOrStdout(), "%s: %s (%s)\n", ch, display.Lines(ch.Text), ch.Code)
					for _, line := range ch.Diff {
						display.Fprintf(c.OutOrStdout(), "    %s\n", line)
					}
				}
			}
			if err := notAsAccepted(changes); err != nil {
				return err
			}
			if !g.JSON {
				n, verb := len(h.Upstreams.Names()), "match"
				if len(accept) > 0 {
					n = len(accept)
				}
				switch n {
				case 0:
					display.Fprintf(c.ErrOrStderr(), "no servers are configured\n")
					return nil
				case 1:
					verb = "matches"
				}
				display.Fprintf(c.OutOrStdout(), "%s %s waldo.lock\n", display.Count(n, "server"), verb)
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&accept, "accept", nil, "accept server `NAME` as it is now")
	c.Flags().StringSliceVar(&show, "show", nil, "show what accepting server `NAME` would accept, and accept nothing")
	c.Flags().BoolVar(&fresh, "fresh", false, "ask the registries, also where they were asked within the hour")
	return c
}

// notAsAccepted returns the error for the changes that a lock found, or nil.
func notAsAccepted(changes []lockfile.Change) error {
	var missing []string
	for _, ch := range changes {
		if ch.Code == app.Unseen && !slices.Contains(missing, ch.Server) {
			missing = append(missing, ch.Server)
		}
	}
	n := len(slices.DeleteFunc(slices.Clone(changes), func(ch lockfile.Change) bool { return ch.Code == app.Unseen }))
	var say, do []string
	if n > 0 {
		say, do = append(say, display.Count(n, "difference")+" from waldo.lock"),
			append(do, "review with waldo lock --show NAME, then: waldo lock --accept NAME")
	}
	if len(missing) > 0 {
		say, do = append(say, display.Count(len(missing), "server")+" could not be checked: "+strings.Join(missing, ", ")),
			append(do, "fix the errors above, then run waldo lock again")
	}
	if len(say) == 0 {
		return nil
	}
	return &exitcode.Exit{Code: exitcode.Problems, Text: strings.Join(say, "; "), Hint: strings.Join(do, "; ")}
}

// compareLock compares every server with waldo.lock. It prints notes and what it would accept, accepts that, and
// returns the differences.
func compareLock(c *cobra.Command, h *app.App, accept []string) ([]lockfile.Change, error) {
	ctx, w := c.Context(), c.ErrOrStderr()
	servers := cmp.Or(len(accept), len(h.Upstreams.Names()))
	bar := terminal.ProgressOf(os.Stderr, "checking servers", 2*servers) // its package, and its start
	all, lock, err := h.CompareLock(ctx, accept, bar.Begin)
	bar.Close()
	changes := []lockfile.Change{}
	for _, one := range all {
		for _, p := range one.Hidden {
			display.Fprintf(w, "waldo: %s is hidden from agents: %s (%s)\n", app.LeftOut(p), display.Lines(p.Text), p.Code)
		}
		if one.Accepted != nil { // before it is signed
			printServer(w, *one.Accepted, true)
		}
		changes = append(changes, one.Changes...)
	}
	if err != nil || lock == nil {
		return changes, err
	}
	if err := h.AcceptLock(ctx, lock, all, signsAs(c)); err != nil {
		return changes, err
	}
	for _, one := range all {
		switch {
		case one.Accepted != nil:
			display.Fprintf(w, "accepted %s: %s\n", one.Server, one.Inventory)
		case one.Removed:
			display.Fprintf(w, "accepted %s: its entry is removed\n", one.Server)
		}
	}
	return changes, tellServes(ctx, h, w)
}

// tellServes has every waldo serve of this lock take it, and prints which did.
func tellServes(ctx context.Context, h *app.App, w io.Writer) error {
	file, replies, silent, err := h.OfferLock(ctx)
	for _, r := range replies {
		switch {
		case r.Kept != "":
			display.Fprintf(w, "%s keeps the lock that it has: %s\n", r.Who(), display.Lines(r.Kept))
		case r.Serves:
			display.Fprintf(w, "%s took %s\n", r.Who(), filepath.Base(file))
		}
	}
	if silent > 0 {
		display.Fprintf(w, "waldo: %s did not answer in time and may have the lock before this one\n",
			display.Count(silent, "waldo process"))
	}
	return err
}
