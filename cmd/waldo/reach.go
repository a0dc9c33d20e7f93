package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/cli/exitcode"
	"waldo/internal/model/display"
)

func newLogin(g *cli.Context) *cobra.Command {
	browser, port := "", 0
	c := &cobra.Command{
		Use: "login SERVER", Short: "Log waldo in to a server that wants a person's consent (OAuth)",
		Args: cobra.ExactArgs(1),
		Long: "Asks the server who issues its tokens, prints the page to open in a browser, and waits until the page leads " +
			"back to this machine.\nwaldo stores the token sealed, as the secret oauth-SERVER, and renews it; waldo secret rm " +
			"oauth-SERVER forgets it.",
		Example: "  waldo login crm\n  waldo login crm --browser xdg-open",
		RunE: func(c *cobra.Command, args []string) error {
			state, cfg, err := g.Configured()
			if err != nil {
				return err
			}
			s, ok := cfg.Servers[args[0]]
			switch {
			case !ok:
				return exitcode.Mistake("servers are named in waldo.yaml under servers:", "no server is called %q", args[0])
			case s.Auth.OAuth == nil:
				return exitcode.Mistake("write auth: {oauth: {}} for a server at a url", "server %s does not use oauth", args[0])
			case port < 0 || port > 65535:
				return exitcode.Mistake("as in --port 8085", "--port %d must be 0 to 65535", port)
			}
			d := app.RemoteDialer(state, cfg, secrets.New(state, cfg, g.Known, cli.Passphrase()).Get, g.Known)
			rt, err := d.Transport(s)
			if err != nil {
				return err
			}
			o := d.Login(s, rt)
			o.Port = port
			o.Browser = func(ctx context.Context, page string) error { return show(ctx, c, page, browser) }
			if err := o.Login(c.Context()); err != nil {
				return &exitcode.Exit{Code: exitcode.Failed, Err: fmt.Errorf("server %s: %w", s.Name, err)}
			}
			if g.JSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]any{"server": s.Name, "logged_in": true})
			}
			display.Fprintf(c.OutOrStdout(), "logged in to %s\n", s.Name)
			return nil
		},
	}
	c.Flags().StringVar(&browser, "browser", "",
		"a program that is given the page to open; without it the page is printed alone")
	c.Flags().IntVar(&port, "port", 0, "the port of this machine that the page leads back to, where it is registered")
	return c
}

// show prints the page, and hands it to a program of the person's where one is named.
func show(ctx context.Context, c *cobra.Command, page, browser string) error {
	display.Fprintf(c.ErrOrStderr(), "Open this page in a browser:\n  %s\n", page)
	argv := strings.Fields(browser)
	if len(argv) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], page)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("--browser: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
