package e2b

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/display"
	"waldo/internal/network/loopback"
)

// DefaultListen is the default address.
const DefaultListen = "127.0.0.1:7677"

func newCommand(g *cli.Context) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "e2b [--listen ADDRESS]", Short: "Serve E2B's API, so that programs with its SDK run here", Args: cobra.NoArgs,
		Long: "Answers the SDK of E2B at one address: sandboxes, commands, files and the code interpreter. An API key is a " +
			"token of\nwaldo (waldo token NAME), and its sandboxes belong to token:NAME. Each command is a call of exec, each " +
			"piece of code\none of run_*: their contracts decide. See docs/e2b.md for what differs.",
		Example: "  waldo e2b\n  E2B_API_URL=http://127.0.0.1:7677 E2B_SANDBOX_URL=http://127.0.0.1:7677 E2B_API_KEY=waldo_… " +
			"node app.mjs",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := g.Open(c.Context(), app.Options{Warm: app.WarmSandboxes, Sessions: app.MaxSessions,
				Log: slog.New(exitcode.NewLogger(exitcode.Hiding{W: c.ErrOrStderr(), Known: g.Known}, slog.LevelInfo, true))})
			if err != nil {
				return err
			}
			defer h.Close()
			if err := h.RequireSecrets(true); err != nil {
				return err
			}
			l, err := open(h, listen)
			if err != nil {
				return err
			}
			display.Fprintf(c.ErrOrStderr(), "waldo: listening on http://%s for E2B's SDK\n", l.Addr())
			return serve(c.Context(), h, l)
		},
	}
	c.Flags().StringVar(&listen, "listen", DefaultListen, "`ADDRESS` to listen on")
	return c
}

// open listens on an address. Nobody is let in without a token, so there must be one.
func open(h *app.App, at string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(at)
	switch {
	case err != nil:
		return nil, exitcode.Mistake("as in --listen "+DefaultListen, "%q is not an address to listen on", at)
	case len(h.Config.Gateway.Tokens) == 0:
		return nil, exitcode.Mistake("waldo token NAME makes a token", "no client could be let in: gateway.auth has no tokens")
	case !loopback.Is(host) && h.Config.Gateway.URL == "":
		return nil, exitcode.Mistake("put a proxy with TLS before it, and write gateway: {url: https://…}",
			"listening on %s, beyond this machine, needs gateway.url", at)
	}
	return loopback.Listen(at)
}

// Limits of one server.
const (
	maxHeaders = 32 << 10
	shutdown   = 10 * time.Second
)

// connections are the shares of clients and of strangers.
var connections = web.Limits{Conns: 1024, Strangers: 256, Stranger: 10 * time.Second}

// serve answers until ctx is done. Then it ends the commands of its sandboxes.
func serve(ctx context.Context, h *app.App, l net.Listener) error {
	s, err := newServer(ctx, h)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer s.close()
	hs := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)}
	go s.expire(ctx)
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(web.Beside(ctx, hs, l, connections)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.close() // streams end with their commands
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
	defer cancel()
	if err := hs.Shutdown(end); err != nil {
		return hs.Close()
	}
	return nil
}
