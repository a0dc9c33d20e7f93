package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

func newSandboxPort(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "port NAME PORT[:LOCAL]", Short: "Forward a port of a sandbox to this machine's loopback while this runs", Args: cobra.ExactArgs(2),
		Long: "Connections to port LOCAL of this machine's loopback (PORT unless given, 0: any) go to PORT at the loopback of the\n" +
			"sandbox, 127.0.0.1 or else ::1. The sandbox gets no way out by it. Every user of this machine can connect to LOCAL.",
		Example: "  waldo sandbox exec --background work -- npm start\n  waldo sandbox port work 3000\n  waldo sandbox port work 3000:8080",
		RunE: withBoxes(g, func(c *cobra.Command, h *app.App, m *sandboxes.Manager, args []string) error {
			port, local, err := ports(args[1])
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
			f := forwardOf(driver, m, s, port)
			return f.serve(c.Context(), local, func(at net.Addr) {
				display.Fprintf(c.ErrOrStderr(), "http://%s is port %d of %s; Ctrl-C ends it\n", at, port, s.Name)
			})
		}),
	}
}

// noPorts refuses to forward a port of a sandbox that no driver reaches.
func noPorts(level string) error {
	return &exit{code: exitDenied, text: "no port of a sandbox of isolation " + level + " can be reached",
		hint: "waldo sandbox create --isolation namespace"}
}

// ports reads PORT or PORT:LOCAL.
func ports(text string) (port, local uint16, err error) {
	in, out, both := strings.Cut(text, ":")
	p, err := strconv.ParseUint(in, 10, 16)
	l := p
	if err == nil && both {
		l, err = strconv.ParseUint(out, 10, 16)
	}
	if err != nil || p == 0 {
		return 0, 0, usage("as in 3000 or 3000:8080", "%q is not PORT[:LOCAL]", text)
	}
	return uint16(p), uint16(l), nil
}

// dialIn connects to a port of a sandbox, of the first of its commands that answers there.
func dialIn(ctx context.Context, driver sandbox.Reacher, m *sandboxes.Manager, s sandboxes.Sandbox, port uint16) (net.Conn, error) {
	all, err := m.Commands(ctx, s.Owner, s.ID)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b sandboxes.Command) int { return strings.Compare(a.Call, b.Call) })
	err = fmt.Errorf("sandbox %s: no command runs that could answer at port %d", s.Name, port)
	for _, one := range all {
		if one.PID == 0 {
			continue
		}
		conn, derr := dialOne(driver, one.PID, port)
		if derr == nil {
			return conn, nil
		}
		err = derr
	}
	return nil, err
}

func dialOne(driver sandbox.Reacher, pid int, port uint16) (net.Conn, error) {
	reach, err := driver.Reach(pid)
	if err != nil {
		return nil, err
	}
	conn, err := reach.Dial(port)
	return conn, errors.Join(err, reach.Close())
}

// maxForwarded is how many connections one port forwards at a time.
const maxForwarded = 64

// forward passes connections on from this machine's loopback to a port of a sandbox.
type forward struct {
	port uint16
	dial func(ctx context.Context, port uint16) (net.Conn, error)
}

// forwardOf returns what forwards a port of a named sandbox.
func forwardOf(driver sandbox.Reacher, m *sandboxes.Manager, s sandboxes.Sandbox, port uint16) *forward {
	return &forward{port: port, dial: func(ctx context.Context, port uint16) (net.Conn, error) { return dialIn(ctx, driver, m, s, port) }}
}

// serve forwards until ctx ends. It calls ready with the listening address, which is always on the loopback.
func (f *forward) serve(ctx context.Context, local uint16, ready func(net.Addr)) error {
	all, err := f.listen(local)
	if err != nil {
		return err
	}
	ready(all[0].Addr())
	f.accept(ctx, all)
	return terminal.ErrInterrupted
}

// listen listens at a port of 127.0.0.1 and, where this machine has it, of ::1.
func (f *forward) listen(local uint16) ([]net.Listener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
	if err != nil {
		return nil, &exit{code: exitUsage, err: err, hint: fmt.Sprintf("give another, as in %d:0", f.port)}
	}
	all := []net.Listener{l}
	if six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))); err == nil {
		all = append(all, six)
	}
	return all, nil
}

// accept forwards the connections of listeners, which it closes, until ctx ends.
func (f *forward) accept(ctx context.Context, listeners []net.Listener) {
	var all sync.WaitGroup
	room := make(chan struct{}, maxForwarded)
	for _, l := range listeners {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		defer stop()
		all.Go(func() {
			for {
				conn, err := l.Accept()
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					time.Sleep(50 * time.Millisecond) // no descriptor is free, for example
					continue
				}
				room <- struct{}{}
				all.Go(func() {
					defer func() { <-room }()
					f.pass(ctx, conn)
				})
			}
		})
	}
	all.Wait()
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
	m := sandboxes.New(h.Store, time.Now)
	for i, text := range slices.Concat(own, s.Ports) {
		port, local, err := ports(text)
		f := forwardOf(driver, m, s, port)
		var listeners []net.Listener
		if err == nil {
			listeners, err = f.listen(local)
		}
		if err != nil && i < len(own) {
			end()
			return nil, err
		}
		all.Go(func() {
			for ; err != nil; listeners, err = f.listen(local) {
				if !wait(ctx, time.Second) {
					return
				}
			}
			display.Fprintf(w, "http://%s is port %d of %s\n", listeners[0].Addr(), port, s.Name)
			f.accept(ctx, listeners)
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

// pass copies one connection in both directions. It closes a connection that the sandbox does not answer.
func (f *forward) pass(ctx context.Context, from net.Conn) {
	defer from.Close()
	to, err := f.dial(ctx, f.port)
	if err != nil {
		return
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(from.Close(), to.Close()) })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			if half, ok := way[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
