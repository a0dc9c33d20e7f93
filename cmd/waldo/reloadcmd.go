package main

import (
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app/control"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newReload(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Take the configuration anew into every running waldo serve of this state directory",
		Args: cobra.NoArgs,
		Long: "Each waldo serve of the state directory reads its own configuration file again, as at its start: " +
			"with its own flags,\nand one that was only found has to be trusted in its new form. Calls under way end " +
			"under the contracts that they\nbegan with; hosts stay connected and hear that their lists have changed. " +
			"A configuration that cannot be taken\nleaves the one before it in force. SIGHUP does the same for one process. " +
			"Exit status 1: one was not taken.",
		Example: "  waldo reload",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := g.OpenStorage()
			if err != nil {
				return err
			}
			defer s.Close()
			replies, silent, err := control.Put(c.Context(), s.Store, control.Reload, control.Order{})
			if err != nil {
				return err
			}
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), map[string]any{"replies": replies, "silent": silent}); err != nil {
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
					display.Fprintf(c.ErrOrStderr(), "%s keeps the configuration that it has: %s\n", r.Who(), display.Lines(r.Kept))
				case !g.JSON:
					display.Fprintf(c.OutOrStdout(), "%s took %s\n", r.Who(), r.Said)
				}
				serve++
			}
			if serve == 0 && silent == 0 {
				display.Fprintf(c.ErrOrStderr(), "no waldo serve runs on %s\n", s.Store.Dir())
			}
			return unheeded(kept, silent)
		},
	}
}

// unheeded returns the error of an order that some waldo did not carry out.
func unheeded(kept, silent int) error {
	switch {
	case silent > 0:
		return &exitcode.Exit{
			Code: exitcode.Problems, Text: display.Count(silent, "waldo process") + " did not answer in time",
			Hint: "it may hang or be suspended: look for it, and end it if need be",
		}
	case kept > 0:
		return &exitcode.Exit{
			Code: exitcode.Problems, Text: "the new configuration is not in force everywhere",
			Hint: "waldo check shows where and how; waldo trust records a file that was found",
		}
	}
	return nil
}
