package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/advice"
	"waldo/internal/app/secrets"
	"waldo/internal/cli/exitcode"
	"waldo/internal/config"
	"waldo/internal/config/starter"
	"waldo/internal/core/policy"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

func newCheck(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE]", Short: "Check contracts and their examples; errors point at line and column",
		Long: "Reads a configuration, compiles it and decides its examples. Exit status 0: sound, warnings included;\n" +
			"1: problems found; 2: there is nothing to check.",
		Example: "  waldo check\n  waldo check waldo.yaml --json", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path, _ := g.Source().File()
			if len(args) == 1 {
				path = args[0]
			}
			if path == "" {
				return exitcode.Mistake("write one with waldo init", "no configuration found; the built-in contracts apply")
			}
			text, err := config.ReadFile(path)
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err, Hint: "give the file to check"}
			}
			cfg, problems := config.ParseIn(path, text, g.Source().Selected())
			if len(problems) == 0 {
				if problems, err = app.CheckExamples(cfg, g.Tools); err != nil {
					return err
				}
			}
			var shown []cli.Shown
			if cfg != nil {
				var refused, missing contract.Problems
				shown, refused, missing = cli.ShownFiles(g.State, cfg)
				cfg.Warnings = slices.Concat(withoutStored(g, cfg), serverpackage.Unpinned(cfg), missing)
				problems = append(problems, refused...)
				refused, more := examine(c.Context(), g, cfg)
				problems, cfg.Warnings = append(problems, refused...), append(cfg.Warnings, more...)
			}
			return tellCheck(c, g, path, string(text), cfg, problems, shown)
		},
	}
}

// examine returns what the features find in a configuration. A configuration that does not compile has its problems
// already.
func examine(ctx context.Context, g *cli.Context, cfg *contract.Config) (problems, warnings contract.Problems) {
	p, err := policy.New(cfg, app.AnyMachine(g.Tools))
	if err != nil {
		return nil, nil
	}
	place := app.Place{State: g.State, Config: cfg, Secret: secrets.New(g.State, cfg, g.Known, nil).Get, Known: g.Known}
	for _, f := range features {
		if f.Check != nil {
			refused, more := f.Check(ctx, place, p)
			problems, warnings = append(problems, refused...), append(warnings, more...)
		}
	}
	return problems, append(warnings, advice.Warnings(cfg, p)...)
}

func tellCheck(
	c *cobra.Command, g *cli.Context, path, text string, cfg *contract.Config, problems contract.Problems,
	shown []cli.Shown,
) error {
	warnings := []contract.Problem{}
	contracts := 0
	if cfg != nil {
		warnings = append(warnings, cfg.Warnings...)
		for _, k := range cfg.Contracts {
			if !k.BuiltIn {
				contracts++
			}
		}
	}
	if g.JSON {
		if problems == nil {
			problems = contract.Problems{}
		}
		if err := terminal.JSON(c.OutOrStdout(),
			map[string]any{
				"file": path, "ok": len(problems) == 0, "contracts": contracts, "problems": problems,
				"warnings": warnings, "shown": shown,
			}); err != nil {
			return err
		}
	} else {
		p := terminal.Painter(c.OutOrStdout())
		for _, w := range warnings {
			display.Fprintf(c.OutOrStdout(), "%s %s\n", p.Warn("warning:"), display.Text(w.Render(text)))
		}
		for _, e := range problems {
			display.Fprintf(c.OutOrStdout(), "%s %s\n", p.Bad("error:"), display.Text(e.Render(text)))
		}
	}
	if len(problems) > 0 {
		return &exitcode.Exit{
			Code: exitcode.Problems, Text: fmt.Sprintf("%s: %s", path, display.Count(len(problems), "problem")),
		}
	}
	if !g.JSON {
		cli.TellShown(c.OutOrStdout(), shown)
		tellPackages(c.OutOrStdout(), cfg)
		for _, name := range slices.Sorted(maps.Keys(cfg.Webhooks)) {
			if cfg.Webhooks[name].Deliver.Tool == "" {
				display.Fprintf(c.OutOrStdout(), "webhook %s: waldo serve --listen queues it; waldo agent --serve works on it\n", name)
			}
		}
		display.Fprintf(c.OutOrStdout(), "%s: sound, %s, %s\n", path, display.Count(contracts, "contract"),
			display.Count(len(warnings), "warning"))
	}
	return nil
}

func newInit(g *cli.Context) *cobra.Command {
	var like string
	c := &cobra.Command{
		Use: "init [--like PROFILE]", Short: "Write a commented, tight waldo.yaml for this folder, and its schema for editors",
		Args: cobra.NoArgs,
		Long: "Without --like the agent gets sandboxes for code and the toolkit, tight. A profile is for one kind of work:\n" +
			"github-readonly, data-analysis, coding-agent or prod-ops; or for an agent host that waldo launch starts: claude,\n" +
			"codex, gemini or opencode. Each is a file to grow from.",
		Example: "  waldo init && waldo check && waldo trust\n  waldo init --like coding-agent\n" +
			"  waldo init --like claude && waldo trust && waldo launch claude",
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			text, next, err := beginning(g, like, dir)
			if err != nil {
				return err
			}
			for _, f := range []struct {
				name string
				text []byte
			}{{"waldo.yaml", text}, {"waldo.schema.json", config.Schema()}} {
				err := create(filepath.Join(dir, f.name), f.text)
				if errors.Is(err, os.ErrExist) && f.name != "waldo.yaml" {
					display.Fprintf(c.OutOrStdout(), "left %s as it is\n", f.name)
					continue
				}
				if errors.Is(err, os.ErrExist) {
					return exitcode.Mistake("move it away first, or edit it", "%s is there already; nothing was changed", f.name)
				}
				if err != nil {
					return err
				}
				display.Fprintf(c.OutOrStdout(), "wrote %s\n", f.name)
			}
			for _, f := range starter.Folders(like) {
				if err := os.Mkdir(filepath.Join(dir, f), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
					return err
				}
				display.Fprintf(c.OutOrStdout(), "folder %s\n", f)
			}
			display.Fprintf(c.OutOrStdout(), nextSteps, next)
			for _, f := range features {
				if f.Next != nil {
					f.Next(c.OutOrStdout(), dir)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&like, "like", "", "begin with a `PROFILE`")
	return c
}

// beginning returns the configuration to begin with, and the last of the next steps.
func beginning(g *cli.Context, like, dir string) (text []byte, next string, err error) {
	const install = "waldo install HOST            # gives waldo to an agent host, such as claude"
	if like == "" {
		return starter.Init(dir), install, nil
	}
	if text, known := starter.Like(like, dir); known {
		return text, install, nil
	}
	for _, f := range features {
		if f.Profiles != nil && slices.Contains(f.Profiles(), like) {
			return f.Start(like, dir)
		}
	}
	return nil, "", exitcode.Mistake("it is one of "+strings.Join(g.Profiles, ", "), "unknown profile %q", like)
}

const nextSteps = `Next:
  waldo check                   # reads the file and decides its examples
  waldo trust                   # puts it in force; again after each change
  waldo approve --enroll NAME   # once: makes the key that answers questions
  %s
`

// create writes a new file, whole or not at all, and never over one that is there (os.ErrExist).
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
