package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/health"
	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
)

func newDoctor(g *cli.Context) *cobra.Command {
	var more []func(context.Context) ([]sandbox.Report, error)
	c := &cobra.Command{
		Use: "doctor", Short: "Test what works on this machine and in waldo.yaml, and say how to fix the rest",
		Example: "  waldo doctor\n  waldo doctor --json\n  waldo doctor --kubernetes --kubeconfig ~/.kube/config",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			state, cfg, invalid := g.Configured()
			if state == "" {
				return invalid
			}
			var reports, asked []sandbox.Report
			for _, examine := range more {
				rs, err := examine(c.Context())
				if err != nil {
					return err
				}
				asked = append(asked, rs...)
			}
			ok, works := false, []string{}
			all := app.Drivers(state, cli.Downloads)
			for _, name := range []string{"gvisor", "namespace", "confined", "engine"} { // the stronger first
				r := all[name].Probe(c.Context())
				if err := c.Context().Err(); err != nil {
					return err
				}
				if reports = append(reports, r); r.OK {
					works = append(works, name)
				}
				ok = ok || r.OK && (name != "engine" || contract.UsualIsolation == name) // one language is no level for the rest
			}
			named := sandbox.Report{Driver: "configuration", Abilities: []sandbox.Ability{{Name: "waldo.yaml", Need: true,
				What: fmt.Sprint(invalid), Hint: "waldo check says what is wrong, and waldo trust puts it in force"}}}
			if invalid == nil {
				place := app.Place{State: state, Config: cfg, Secret: secrets.New(state, cfg, g.Known, nil).Get, Known: g.Known}
				named.Abilities = health.Servers(c.Context(), place)
				for _, f := range features {
					if f.Doctor != nil {
						named.Abilities = append(named.Abilities, f.Doctor(c.Context(), place)...)
					}
				}
				named.OK = !slices.ContainsFunc(named.Abilities, func(a sandbox.Ability) bool { return !a.OK })
			}
			if len(named.Abilities) > 0 {
				reports = append(reports, named)
			}
			stored, there := storeReport(c.Context(), state)
			if there {
				reports = append(reports, stored)
			}
			reports = append(reports, asked...)
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), reports); err != nil {
					return err
				}
			} else {
				tellReports(c.OutOrStdout(), reports)
				display.Fprintf(c.OutOrStdout(), "%s\n", health.Standing())
			}
			if len(asked) > 0 {
				ok = len(works) > 0 // an image without a shell has the level engine alone
			}
			if !ok {
				return &exitcode.Exit{
					Code: exitcode.Problems, Text: "no level of isolation works on this machine", Hint: "see the hints above",
				}
			}
			if len(named.Abilities) > 0 && !named.OK {
				return &exitcode.Exit{
					Code: exitcode.Problems, Text: "something that waldo.yaml names does not work", Hint: "see the hints above",
				}
			}
			if there && !stored.OK {
				return &exitcode.Exit{Code: exitcode.Problems, Text: "this waldo cannot use the state directory",
					Hint: "see the hints above"}
			}
			for _, r := range asked {
				if !r.OK {
					return &exitcode.Exit{
						Code: exitcode.Problems, Text: "a guard of " + r.Driver + " is not proven", Hint: "see the hints above",
					}
				}
			}
			if !g.JSON {
				display.Fprintf(c.OutOrStdout(), "ready: code runs here with isolation %s\n", strings.Join(works, ", "))
			}
			return nil
		},
	}
	for _, f := range features {
		if f.Examine != nil {
			more = append(more, f.Examine(c))
		}
	}
	return c
}

// storeReport reports whether this waldo can use the database of the state directory. false: there is none yet.
func storeReport(ctx context.Context, state string) (r sandbox.Report, there bool) {
	there, err := database.Examine(ctx, state)
	a := sandbox.Ability{Name: "database", Need: true, OK: err == nil, What: "its schema is known"}
	if err != nil {
		a.What, a.Hint = err.Error(), "nothing was changed; name another state directory with --state, or use another waldo"
	}
	return sandbox.Report{Driver: "state directory", OK: a.OK, Abilities: []sandbox.Ability{a}}, there
}

// tellReports prints the verified abilities of each driver, one per line, with hints for missing ones.
func tellReports(w io.Writer, reports []sandbox.Report) {
	p := terminal.Painter(w)
	for _, r := range reports {
		verdict := p.Good("works here")
		if !r.OK {
			verdict = p.Bad("does not work here")
		}
		display.Fprintf(w, "%s: %s\n", p.Head(r.Driver), verdict)
		shared := 1 // missing abilities in a row with one hint
		for i, a := range r.Abilities {
			mark := p.Good("ok     ")
			switch {
			case !a.OK && a.Need:
				mark = p.Bad("no     ")
			case !a.OK:
				mark = p.Warn("missing")
			}
			display.Fprintf(w, "  %s %-31s %s\n", mark, a.Name, a.What)
			if a.OK || a.Hint == "" {
				continue
			}
			if i+1 < len(r.Abilities) && !r.Abilities[i+1].OK && r.Abilities[i+1].Hint == a.Hint {
				shared++
				continue
			}
			hint := a.Hint
			if shared > 1 {
				hint = fmt.Sprintf("for these %d: %s", shared, hint)
			}
			display.Fprintf(w, "       %s\n",
				display.Text(strings.ReplaceAll(string(display.Lines(hint)), "\n  | ", "\n       ")))
			shared = 1
		}
	}
}
