package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/memory"
	"waldo/internal/app/systemd"
	"waldo/internal/cli/exitcode"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

func newServe(g *cli.Context) *cobra.Command {
	var stdio bool
	var listen string
	var lean bool
	c := &cobra.Command{
		Use: "serve [--stdio | --listen ADDRESS]", Short: "The gateway: an MCP server for an agent host", Args: cobra.NoArgs,
		Long: "Offers waldo's own tools and those of the configured servers, each call decided by its contract: " +
			"over standard input and\noutput, or over HTTP at /mcp. With neither flag it is standard input and output where " +
			"they are pipes, as an agent's host\nmakes them, and otherwise HTTP at gateway.listen or " +
			app.DefaultListen + ".\n\n" +
			"Over HTTP, waldo admits its own user from this machine, and with gateway.auth a token (waldo token)\n" +
			"or a user of an OpenID issuer. A socket that systemd passes takes the place of --listen (waldo service).",
		Example: "  waldo serve --stdio\n  claude mcp add waldo -- waldo serve --stdio\n" +
			"  waldo serve --listen 127.0.0.1:7676\n  claude mcp add --transport http waldo http://127.0.0.1:7676/mcp",
		RunE: func(c *cobra.Command, _ []string) error {
			passed, err := systemd.Listeners()
			if err != nil {
				return err
			}
			if err := app.Delegated(); err != nil {
				return err
			}
			overHTTP := listen != "" || len(passed) > 0
			g.Hosted = !overHTTP && (stdio || piped(c.InOrStdin()))
			if stdio && overHTTP {
				return exitcode.Mistake("one waldo serve for each", "--stdio and --listen, or a socket of systemd, exclude each other")
			}
			hup := make(chan os.Signal, 1) // a terminal that is closed ends no gateway: its host closes the pipe
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			said := slog.New(exitcode.NewLogger(exitcode.Hiding{W: c.ErrOrStderr(), Known: g.Known}, slog.LevelInfo, true))
			slog.SetDefault(said)
			h, err := g.Open(c.Context(), app.Options{
				Warm: app.WarmSandboxes, Sessions: app.MaxSessions, Reloads: hup, Log: said,
			})
			if err != nil {
				return err
			}
			defer h.Close()
			if err := h.RequireSecrets(true); err != nil {
				return err
			}
			h.KeepClean(c.Context())
			go func() { // a database that is away takes its time
				problems, _ := examine(c.Context(), g, h.Config)
				for _, p := range problems {
					said.Warn(p.Text, "code", p.Code, "at", p.At.String(), "hint", p.Hint)
				}
			}()
			memory.Serving()
			if overHTTP || !stdio && !piped(c.InOrStdin()) {
				return h.ServeHTTP(c.Context(), listen, passed, lean, func(at net.Addr) {
					display.Fprintf(c.ErrOrStderr(), "waldo: listening on http://%s/mcp\nwaldo: %s\n", at, serves(h.Config))
				})
			}
			return h.ServeStdio(c.Context(), lean, c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&stdio, "stdio", false, "serve standard input and output; the default when standard input is a pipe")
	c.Flags().BoolVar(&lean, "lean", false,
		"show three tools in place of all: search_tools, call_tool and run_code (gateway.lean)")
	c.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on over HTTP, as in "+app.DefaultListen)
	return c
}

// serves says what a gateway over HTTP serves, and who may call it.
func serves(cfg *contract.Config) string {
	callers := "programs of your user alone"
	if g := cfg.Gateway; g.Authenticates() {
		callers = display.Count(len(g.Tokens), "token")
		if g.OIDC != nil {
			callers += ", and logins of " + g.OIDC.Issuer
		}
		if n := len(g.Tenants); n > 0 {
			callers += ", of " + display.Count(n, "tenant")
		}
	}
	from := "the built-in contracts"
	if cfg.File != "" {
		from = cfg.File
	}
	return fmt.Sprintf("from %s, with %s; callers: %s; the console: waldo console", from,
		display.Count(len(cfg.Servers), "server"), callers)
}

// piped reports whether in is the kind of input that an agent host creates: a pipe, a socket or a file, but not a
// terminal or /dev/null.
func piped(in any) bool {
	f, ok := in.(*os.File)
	if !ok {
		return true
	}
	about, err := f.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice == 0
}
