// Package consoling is waldo console.
package consoling

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/app/operator"
	"waldo/internal/frontend/console"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Waldo holds the parts of waldo that the command needs.
type Waldo struct {
	Open    func(ctx context.Context, s app.Options) (*app.App, error)
	Storage func() (*app.Storage, error)
	JSON    *bool // whether --json was given
}

// New returns the command.
func New(w Waldo) *cobra.Command {
	var listen, role string
	var link bool
	c := &cobra.Command{
		Use: "console [--listen ADDRESS]", Short: "The web console: approvals, calls, sandboxes and the log in a browser",
		Args: cobra.NoArgs,
		Long: "Serves the console of the state directory to browsers of this machine, and prints a link that logs in once. " +
			"It shows\nevery waldo of the state directory, live. waldo serve --listen serves the same at /.\n\n" +
			"A login can look, stop agents and pause sandboxes, as this command line can. To approve it needs a passkey " +
			"as well:\nwaldo approve --enroll NAME --passkey enrols one.",
		Example: "  waldo console\n  waldo console --link --role viewer",
		RunE: func(c *cobra.Command, _ []string) error {
			may := console.ParseRole(role)
			if may == console.RoleNone {
				return fault.Usage("viewer, approver or operator", "unknown role %q", role)
			}
			port, err := loopback(listen)
			if err != nil {
				return err
			}
			if link {
				return w.link(c, port, may)
			}
			return w.serve(c, listen, may)
		},
	}
	c.Flags().StringVar(&listen, "listen", app.DefaultConsole, "`ADDRESS` of this machine to listen on")
	c.Flags().BoolVar(&link, "link", false, "print a new login link for a console that listens there, and exit")
	c.Flags().StringVar(&role, "role", "operator", "`ROLE` that the link gives: viewer, approver or operator")
	return c
}

// loopback returns the port of an address of this machine.
func loopback(listen string) (port string, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", fault.Usage("as in --listen "+app.DefaultConsole, "%q is not an address to listen on", listen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fault.Usage("for other machines: waldo serve --listen, with gateway.url and gateway.auth",
			"the console listens on this machine alone, not on %s", host)
	}
	return port, nil
}

func (w Waldo) link(c *cobra.Command, port string, role console.Role) error {
	s, err := w.Storage()
	if err != nil {
		return err
	}
	if listens, err := s.ConsoleAt(c.Context(), port); err != nil || !listens {
		none := fault.Usage("start one: waldo console; or give the address of the one that runs: --listen 127.0.0.1:7676",
			"no console of this state directory listens on port %s", port)
		return errors.Join(cmp.Or(err, none), s.Close())
	}
	token, err := operator.NewLink(c.Context(), s.Store, role)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	url := "http://localhost:" + port + "/login#" + token
	if *w.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]string{"url": url, "role": role.String()})
	}
	display.Fprintf(c.OutOrStdout(), "%s\n", url)
	return nil
}

func (w Waldo) serve(c *cobra.Command, listen string, role console.Role) error {
	h, err := w.Open(c.Context(), app.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return &fault.Error{
			Err: err, Tip: "is another console listening there? waldo console --link prints a login for it; or choose another " +
				"address with --listen",
		}
	}
	_, port, err := net.SplitHostPort(l.Addr().String()) // which --listen may leave open
	if err != nil {
		return err
	}
	seen, done := h.Console(l.Addr())
	defer done()
	token, err := operator.NewLink(c.Context(), h.Store, role)
	if err != nil {
		return err
	}
	display.Fprintf(c.ErrOrStderr(), "waldo: the console listens on http://localhost:%s\n"+
		"waldo: log in with this link, once, within %v:\n\n  http://localhost:%s/login#%s\n\n", port,
		operator.LinkLife, port, token)
	srv := &http.Server{Handler: seen, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return c.Context() }}
	stop := context.AfterFunc(c.Context(), func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
