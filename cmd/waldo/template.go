package main

import (
	"context"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/templates"
	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
)

// newTemplate is in a package of its own.
func newTemplate(g *cli.Context) *cobra.Command {
	return templates.New(templates.Waldo{
		State: func() (string, error) { return g.StateDir() }, Progress: cli.Downloads, JSON: &g.JSON,
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return g.Open(ctx, s) },
	})
}

// orJSON prints v unless there is an error.
func orJSON(c *cobra.Command, err error, v any) error {
	if err != nil {
		return err
	}
	return terminal.JSON(c.OutOrStdout(), v)
}
