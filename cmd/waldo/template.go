package main

import (
	"context"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/templates"
	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
)

// newTemplate is in a package of its own.
func newTemplate(g *global) *cobra.Command {
	return templates.New(templates.Waldo{
		State: func() (string, error) { return openState(g) }, Progress: downloads, JSON: &g.json,
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) },
	})
}

// orJSON prints v unless there is an error.
func orJSON(c *cobra.Command, err error, v any) error {
	if err != nil {
		return err
	}
	return terminal.JSON(c.OutOrStdout(), v)
}
