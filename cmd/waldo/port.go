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

	"waldo/internal/model/display"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

func newSandboxPort(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "port NAME PORT[:LOCAL]", Short: "Forward a port of a sandbox to this machine's loopback while this runs", Args: cobra.ExactArgs(2),
		Long: "Connections to 127.0.0.1:LOCAL (PORT unless given, 0: any) go to PORT at the loopback of the sandbox, of the first of\n" +
			"its commands that answers there. The sandbox gets no way out by it. Every user of this machine can connect to LOCAL.",
		Example: "  waldo sandbox exec --background work -- npm start\n  waldo sandbox port work 3000\n  waldo sandbox port work 3000:8080",
		RunE: withBoxes(g, func(c *cobra.Command, h *house, m *sandboxes.Manager, args []string) error {
			port, local, err := ports(args[1])
			if err != nil {
				return err
			}
			s, err := m.Get(c.Context(), owner(), args[0])
			if err != nil {
				return err
			}
			level := s.Isolation
			if level == "auto" || level == "" {
				level = h.runner.Auto
			}
			driver, ok := h.drivers[level].(sandbox.Reacher)
			if !ok {
				return &exit{code: exitDenied, text: "no port of a sandbox of isolation " + level + " can be reached",
					hint: "waldo sandbox create --isolation namespace"}
			}
			f := &forward{port: port, dial: func(ctx context.Context, port uint16) (net.Conn, error) {
				return dialIn(ctx, driver, m, s, port)
			}}
			return f.serve(c.Context(), local, func(at net.Addr) {
				display.Fprintf(c.ErrOrStderr(), "http://%s is port %d of %s; Ctrl-C ends it\n", at, port, s.Name)
			})
		}),
	}
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

// serve forwards until ctx ends. ready is told where it listens, which is never beyond the loopback.
func (f *forward) serve(ctx context.Context, local uint16, ready func(net.Addr)) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: fmt.Sprintf("give another, as in %d:0", f.port)}
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	ready(l.Addr())
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, maxForwarded)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return errInterrupted
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
}

// pass copies one connection both ways. One that nobody answers is closed.
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
