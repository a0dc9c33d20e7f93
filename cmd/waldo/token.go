package main

import (
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newToken(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "token NAME", Short: "Make a token that lets a client in over HTTP", Args: cobra.ExactArgs(1),
		Long: "Prints a new token, which is shown this once and kept nowhere, and the line for waldo.yaml that lets its " +
			"holder\nin as the principal token:NAME. The line holds the token's hash alone.",
		Example: "  waldo token ci",
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if name == "" || len(name) > 64 ||
				strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				return exitcode.Mistake("as in waldo token ci", "%q is not a name for a token: letters, digits, _ and -", name)
			}
			token, hash := identity.NewToken()
			if err := app.RecordChange(c.Context(), g.State, "token", name, hash); err != nil {
				return err
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]string{"name": name, "token": token, "hash": hash})
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", token)
			display.Fprintf(c.ErrOrStderr(),
				"Give it to the client, which sends it as Authorization: Bearer. For waldo.yaml:\ngateway: {auth: {tokens: "+
					"{%s: %q}}}\n", name, hash)
			return nil
		},
	}
}
