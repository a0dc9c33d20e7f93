package main

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/forward"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/storage/sandboxes"
)

func newSandboxPort(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "port NAME PORT[:LOCAL]", Short: "Forward a port of a sandbox to this machine's loopback while this runs",
		Args: cobra.ExactArgs(2),
		Long: "Connections to port LOCAL of this machine's loopback (PORT unless given, 0: any) go to PORT at the loopback " +
			"of the\nsandbox, 127.0.0.1 or else ::1. The sandbox gets no way out by it. Programs of your user " +
			"and of root can\nconnect to LOCAL.",
		Example: "  waldo sandbox exec --background work -- npm start\n  waldo sandbox port work 3000\n" +
			"  waldo sandbox port work 3000:8080",
		RunE: withSandboxes(g, func(c *cobra.Command, h *app.App, m *sandboxes.Manager, args []string) error {
			port, local, err := forward.Parse(args[1])
			if err != nil {
				return err
			}
			s, err := m.Get(c.Context(), app.Owner(), args[0])
			if err != nil {
				return err
			}
			driver := h.Reacher(s.Isolation)
			if driver == nil {
				return noPorts(s.Isolation)
			}
			f := forward.Of(driver, m, s, port)
			all, err := f.Listen(local)
			if err != nil {
				return err
			}
			if err := h.RecordPort(c.Context(), ofSandbox(s, port), all[0]); err != nil {
				return err
			}
			display.Fprintf(c.ErrOrStderr(), "http://%s is port %d of %s; Ctrl-C ends it\n", all[0].Addr(), port, s.Name)
			f.Accept(c.Context(), all)
			return terminal.ErrInterrupted
		}),
	}
}

// ofSandbox is the record of a port of a named sandbox.
func ofSandbox(s sandboxes.Sandbox, port uint16) app.PortBody {
	return app.PortBody{Sandbox: s.Name, Principal: s.Owner, Port: port}
}

// noPorts refuses to forward a port of a sandbox that no driver reaches.
func noPorts(level string) error {
	return &exitcode.Exit{Code: exitcode.Denied, Text: "no port of a sandbox of isolation " + level + " can be reached",
		Hint: "waldo sandbox create --isolation namespace"}
}

// forwards forwards ports to a named sandbox until end is called: own are those of this command, and the sandbox's are
// forwarded by one of its commands at a time, so that the next one goes on when that one ends.
func forwards(ctx context.Context, h *app.App, w io.Writer, s sandboxes.Sandbox, own []string) (end func(), err error) {
	if len(own) == 0 && len(s.Ports) == 0 {
		return func() {}, nil
	}
	driver := h.Reacher(s.Isolation)
	if driver == nil {
		return nil, noPorts(s.Isolation)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	end = func() { cancel(); all.Wait() }
	m := h.NamedSandboxes()
	for i, text := range slices.Concat(own, s.Ports) {
		port, local, err := forward.Parse(text)
		f := forward.Of(driver, m, s, port)
		var listeners []net.Listener
		if err == nil {
			listeners, err = f.Listen(local)
		}
		if err != nil && i < len(own) {
			end()
			return nil, err
		}
		all.Go(func() {
			for ; err != nil; listeners, err = f.Listen(local) {
				if !wait(ctx, time.Second) {
					return
				}
			}
			if err := h.RecordPort(ctx, ofSandbox(s, port), listeners[0]); err != nil {
				display.Fprintf(w, "%s\n", err)
				for _, l := range listeners {
					_ = l.Close()
				}
				return
			}
			display.Fprintf(w, "http://%s is port %d of %s\n", listeners[0].Addr(), port, s.Name)
			f.Accept(ctx, listeners)
		})
	}
	return end, nil
}

// wait waits, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
