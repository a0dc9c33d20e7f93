package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/demo"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
)

func newDemo(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "The main job, end to end, with everything built in", Args: cobra.NoArgs,
		Long: "Starts an example help desk with 5,000 customers as an MCP server in a sandbox of its own, runs an agent's " +
			"script in\nanother sandbox, answers its two questions through the approval path, once yes and once no, " +
			"and shows what each guard did.\nIt works in a temporary state directory and leaves nothing behind.",
		Example: "  waldo demo\n  waldo demo --json",
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := os.MkdirTemp("", "waldo-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			out := c.OutOrStdout()
			if g.JSON {
				out = io.Discard
			}
			own := withFeatures(&cli.Context{Version: version, State: filepath.Join(dir, "state"), JSON: g.JSON})
			d := demo.New(out,
				own.Open,
				func(ctx context.Context) (audit.Report, error) { return own.Verify(ctx, nil, false) })
			err = d.Run(c.Context())
			if g.JSON && d.Result.CallID != "" {
				err = errors.Join(err, terminal.JSON(c.OutOrStdout(), d.Result.Facts))
			}
			return err
		},
	}
}
