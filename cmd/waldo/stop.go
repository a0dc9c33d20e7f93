package main

import (
	"errors"
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

func newStop(g *cli.Context) *cobra.Command {
	var all, release bool
	c := &cobra.Command{
		Use: "stop NAME | --all", Short: "End an agent's sessions, sandboxes and requests now, and keep it out",
		Args: cobra.MaximumNArgs(1),
		Long: "NAME is a principal as waldo log shows it (os:1000, token:ci, or ci alone if it is known) or the id of a " +
			"session (n_..). Its sessions\nend in every waldo of the state directory: calls under way are cancelled, " +
			"their sandboxes are removed, and later\ncalls are denied (session.stopped). A principal, or everybody (--all), " +
			"stays out until --release; a session that has\nended stays ended. Both are written into the log. os:UID is every " +
			"agent of that user and the user's own waldo run.\n\nIt stops agents that reach the world through waldo. " +
			"A program outside any sandbox, with the user's own account,\ncan give this order too, and can take it back.",
		Example: "  waldo stop ci\n  waldo stop --all\n  waldo stop --release --all",
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return exitcode.Mistake("as in waldo stop ci, or waldo stop --all", "give a name or --all, and not both")
			}
			name := control.Everybody
			if !all {
				name = args[0]
			}
			return stop(c, g, name, release)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every session of every agent")
	c.Flags().BoolVar(&release, "release", false,
		"let a principal, or everybody, in again; sessions that have ended stay ended")
	return c
}

func stop(c *cobra.Command, g *cli.Context, name string, release bool) (err error) {
	ctx := c.Context()
	s, err := g.OpenStorage()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	note := ""
	if name != control.Everybody && !release {
		if name, note, err = toStop(ctx, g, s, name); err != nil {
			return err
		}
	}
	if release { // also a stop that another waldo stored under the bare name
		if name, err = control.InForce(ctx, s.Store, name); err != nil {
			return err
		}
	}
	if err = s.OpenLog(ctx, 0); err != nil && !release { // a damaged log must not prevent a stop
		display.Fprintf(c.ErrOrStderr(), "waldo: this is not recorded: %v\n", err)
	} else if err != nil {
		return err
	} else if err := control.RecordSync(ctx, s.Log, control.KindStop,
		map[string]any{"name": name, "release": release, "by": app.Principal()}); err != nil {
		return err
	}
	if release {
		return letIn(c, g, s, name)
	}
	if err := s.ForgetCLI(ctx, name); err != nil {
		return err
	}
	replies, silent, err := control.Put(ctx, s.Store, control.Stop+name, control.Order{})
	if err != nil {
		return err
	}
	removed, err := s.StopPrograms(name)
	if err != nil {
		display.Fprintf(c.ErrOrStderr(), "waldo: a suspended program was not removed: %v\n", err)
	}
	ended := 0
	for _, r := range replies {
		ended += len(r.Ended)
	}
	if g.JSON {
		err = terminal.JSON(c.OutOrStdout(), map[string]any{"name": name, "replies": replies, "silent": silent, "programs": removed})
	} else {
		for _, r := range replies {
			for _, n := range r.Ended {
				display.Fprintf(c.OutOrStdout(), "%s ended %s\n", r.Who(), n)
			}
		}
		what := name
		if name == control.Everybody {
			what = "everybody"
		}
		if note != "" {
			display.Fprintf(c.ErrOrStderr(), "note: %s\n", note)
		}
		display.Fprintf(c.ErrOrStderr(), "%s ended", display.Count(ended, "session"))
		if removed > 0 {
			display.Fprintf(c.ErrOrStderr(), ", %s removed", display.Count(removed, "suspended program"))
		}
		if !id.Is(id.Session, name) {
			display.Fprintf(c.ErrOrStderr(), "; %s stays out until: waldo stop --release %s", what,
				strings.ReplaceAll(name, control.Everybody, "--all"))
		}
		display.Fprintf(c.ErrOrStderr(), "\n")
	}
	return errors.Join(err, unheeded(0, silent))
}

// letIn cancels a stop, and waits until every running waldo knows.
func letIn(c *cobra.Command, g *cli.Context, s *app.Storage, name string) error {
	replies, silent, err := control.Release(c.Context(), s.Store, name)
	if err != nil {
		return err
	}
	if g.JSON {
		err = terminal.JSON(c.OutOrStdout(), map[string]any{"name": name, "replies": replies, "silent": silent})
	} else {
		display.Fprintf(c.ErrOrStderr(), "released %s\n", strings.ReplaceAll(name, control.Everybody, "everybody"))
	}
	return errors.Join(err, unheeded(0, silent))
}
