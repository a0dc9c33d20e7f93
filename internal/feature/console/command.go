package console

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
	"waldo/internal/cli"
	"waldo/internal/config"
	"waldo/internal/feature/console/operator"
	"waldo/internal/feature/console/site"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/network/loopback"
)

// command is waldo console.
type command struct{ *cli.Context }

func newConsole(g *cli.Context) *cobra.Command {
	w := command{g}
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
			may := site.ParseRole(role)
			if may == site.RoleNone {
				return fault.Usage("viewer, approver or operator", "unknown role %q", role)
			}
			port, err := portOf(listen)
			if err != nil {
				return err
			}
			if link {
				return w.link(c, port, may)
			}
			return w.serve(c, listen, may)
		},
	}
	c.Flags().StringVar(&listen, "listen", defaultListen, "`ADDRESS` of this machine to listen on")
	c.Flags().BoolVar(&link, "link", false, "print a new login link for a console that listens there, and exit")
	c.Flags().StringVar(&role, "role", "operator", "`ROLE` that the link gives: viewer, approver or operator")
	return c
}

// portOf returns the port of an address of localhost.
func portOf(listen string) (port string, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", fault.Usage("as in --listen "+defaultListen, "%q is not an address to listen on", listen)
	}
	if !loopback.Is(host) {
		return "", fault.Usage("for other machines: waldo serve --listen, with gateway.url and gateway.auth",
			"the console listens at 127.0.0.1 and ::1, both addresses of localhost, and not at %s", host)
	}
	return port, nil
}

func (w command) link(c *cobra.Command, port string, role site.Role) error {
	s, err := w.OpenStorage()
	if err != nil {
		return err
	}
	if listens, err := listening(c.Context(), s, port); err != nil || !listens {
		none := fault.Usage("start one: waldo console; or give the address of the one that runs: --listen 127.0.0.1:7676",
			"no console of this state directory listens on port %s", port)
		return errors.Join(cmp.Or(err, none), s.Close())
	}
	token, err := operator.NewLink(c.Context(), s.Store, role, identity.Self())
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	url := "http://localhost:" + port + "/login#" + token
	if w.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]string{"url": url, "role": role.String()})
	}
	display.Fprintf(c.OutOrStdout(), "%s\n", url)
	return nil
}

func (w command) serve(c *cobra.Command, listen string, role site.Role) error {
	h, err := w.Open(c.Context(), app.Options{})
	if no := (*fault.Error)(nil); errors.As(err, &no) && no.Untrusted { // a passkey signs in the console
		display.Fprintf(c.ErrOrStderr(), "waldo: %v\nwaldo: the console runs without that configuration\n", err)
		h, err = w.Open(c.Context(), app.Options{Cfg: config.Default()})
	}
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := loopback.Listen(listen)
	if err != nil {
		return &fault.Error{
			Err: err, Tip: "is another console listening there? waldo console --link prints a login for it; or choose another " +
				"port with --listen 127.0.0.1:PORT. ss -ltnp shows who has one",
		}
	}
	_, port, err := net.SplitHostPort(l.Addr().String()) // which --listen may leave open
	if err != nil {
		return err
	}
	seen := (&console{App: h}).open(l.Addr())
	defer seen.Close()
	token, err := operator.NewLink(c.Context(), h.Store, role, identity.Self())
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
