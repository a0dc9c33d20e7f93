package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/exitcode"
	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/sandbox/template"
)

func newTemplate(g *global) *cobra.Command {
	c := &cobra.Command{
		Use: "template list|pull|rm", Short: "Root filesystems that sandboxes start from, stored by digest", Args: cobra.NoArgs,
		Example: "  waldo template pull python:3.12-slim\n  waldo template list\n  waldo run --template python:3.12-slim -c 'print(1)'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	with := func(f func(c *cobra.Command, s *template.Store, args []string) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, args []string) error {
			state, err := openState(g)
			if err != nil {
				return err
			}
			s, err := app.OpenTemplates(state, downloads)
			if err != nil {
				return err
			}
			return f(c, s, args)
		}
	}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List the unpacked templates", Args: cobra.NoArgs, Example: "  waldo template list --json",
		RunE: with(func(c *cobra.Command, s *template.Store, _ []string) error {
			all, err := s.List()
			if err != nil || g.json {
				return orJSON(c, err, all)
			}
			var rows [][]string
			for _, t := range all {
				rows = append(rows, []string{t.Name, megabytes(t.Bytes), terminal.Ago(c.OutOrStdout(), t.At.Format(time.RFC3339), time.Now())})
			}
			terminal.List(c.OutOrStdout(), c.ErrOrStderr(), "templates", []string{"NAME", "SIZE", "UNPACKED"}, rows)
			return nil
		}),
	}, &cobra.Command{
		Use: "pull T", Short: "Fetch and unpack a template, even if its tag is stored already", Args: cobra.ExactArgs(1), Example: "  waldo template pull python:3.12-slim",
		RunE: with(func(c *cobra.Command, s *template.Store, args []string) error {
			if args[0] == "" {
				return exitcode.Mistake("waldo template pull python:3.12-slim", "give a template")
			}
			t, err := s.Find(c.Context(), args[0], true)
			if err != nil || g.json {
				return orJSON(c, app.AboutTemplate(err), t)
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", t.Name)
			if t.Skipped > 0 {
				display.Fprintf(c.ErrOrStderr(), "waldo: left out: %s\n", display.Count(t.Skipped, "special file"))
			}
			return nil
		}),
	}, &cobra.Command{
		Use: "rm DIGEST", Short: "Delete a stored template", Args: cobra.ExactArgs(1), Example: "  waldo template rm sha256:…",
		RunE: with(func(_ *cobra.Command, s *template.Store, args []string) error {
			err := s.Remove(args[0])
			if errors.As(err, &template.Unfit{}) {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err, Hint: "waldo template list"}
			}
			return err
		}),
	})
	return c
}

// orJSON prints v unless there is an error.
func orJSON(c *cobra.Command, err error, v any) error {
	if err != nil {
		return err
	}
	return terminal.JSON(c.OutOrStdout(), v)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
