package main

import (
	"strings"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/exitcode"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newToken(g *global) *cobra.Command {
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
			if g.json {
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
