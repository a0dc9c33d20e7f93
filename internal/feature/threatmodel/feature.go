package threatmodel

import (
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
)

// Feature is waldo threatmodel.
var Feature = feature.Feature{
	Name:     "threatmodel",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newCommand(g)} },
}

func newCommand(g *cli.Context) *cobra.Command {
	var check, diff, picture string
	c := &cobra.Command{
		Use: "threatmodel", Short: "Write the threat model of this configuration from its contracts", Args: cobra.NoArgs,
		Long: "Prints assets, threats, guardrails with their lines, and residual risks; what a compromised model or server can do;\n" +
			"and the reach as a list. Commit it. With --check, exits with 1 if the reach is wider than the committed one.",
		Example: "  waldo threatmodel > THREATS.md\n  waldo threatmodel --check THREATS.md\n  waldo threatmodel --diff THREATS.md\n" +
			"  waldo threatmodel --svg reach.svg",
		RunE: func(c *cobra.Command, _ []string) error {
			state, cfg, err := g.Configured()
			if err != nil {
				return err
			}
			switch {
			case picture != "":
				return os.WriteFile(picture, []byte(Picture(cfg)), 0o644)
			case check != "":
				return compare(c.OutOrStdout(), g, cfg, check, true)
			case diff != "":
				return compare(c.OutOrStdout(), g, cfg, diff, false)
			case g.JSON:
				return terminal.JSON(c.OutOrStdout(), Reach(cfg))
			}
			reports := []sandbox.Report{}
			all := app.Drivers(state, cli.Downloads)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				reports = append(reports, all[name].Probe(c.Context()))
			}
			_, err = io.WriteString(c.OutOrStdout(), Document(cfg, reports))
			return err
		},
	}
	c.Flags().StringVar(&check, "check", "", "compare with the committed `FILE`; a wider reach is an error")
	c.Flags().StringVar(&diff, "diff", "", "print what changed since the committed `FILE`, in words")
	c.Flags().StringVar(&picture, "svg", "", "draw who reaches what into this `FILE`")
	return c
}

// compared is what --check and --diff print with --json.
type compared struct {
	Wider    []Change `json:"wider"`
	Narrower []string `json:"narrower"`
}

func compare(w io.Writer, g *cli.Context, cfg *contract.Config, file string, fail bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return exitcode.Mistake("write one with waldo threatmodel > "+file, "%v", err)
	}
	committed, ok := Committed(string(b))
	if !ok {
		return exitcode.Mistake("write one with waldo threatmodel > "+file, "%s has no list of reach", file)
	}
	r := compared{Wider: []Change{}, Narrower: []string{}}
	wider, narrower := Compare(committed, Reach(cfg))
	r.Wider, r.Narrower = append(r.Wider, wider...), append(r.Narrower, narrower...)
	if g.JSON {
		if err := terminal.JSON(w, r); err != nil {
			return err
		}
	} else {
		for _, c := range r.Wider {
			display.Fprintf(w, "wider     %s: %s\n", place(c.At), words(c.Fact))
		}
		for _, n := range r.Narrower {
			display.Fprintf(w, "narrower  %s\n", words(n))
		}
		if len(r.Wider)+len(r.Narrower) == 0 {
			display.Fprintf(w, "the reach is as committed\n")
		}
	}
	if fail && len(r.Wider) > 0 {
		return &exitcode.Exit{Code: exitcode.Problems, Text: display.Count(len(r.Wider), "permission") + " more than " + file,
			Hint: "review it, then: waldo threatmodel > " + file}
	}
	return nil
}
