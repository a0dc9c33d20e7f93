// Package forward passes connections on from the loopback of this machine to a port of a named sandbox.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/network/loopback"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

// Parse reads PORT or PORT:LOCAL.
func Parse(text string) (port, local uint16, err error) {
	in, out, both := strings.Cut(text, ":")
	p, err := strconv.ParseUint(in, 10, 16)
	l := p
	if err == nil && both {
		l, err = strconv.ParseUint(out, 10, 16)
	}
	if err != nil || p == 0 {
		return 0, 0, fault.Usage("as in 3000 or 3000:8080", "%q is not PORT[:LOCAL]", text)
	}
	return uint16(p), uint16(l), nil
}

// dialIn connects to a port of a sandbox, of the first of its commands that answers there.
func dialIn(
	ctx context.Context, driver sandbox.Reacher, m *sandboxes.Manager, s sandboxes.Sandbox, port uint16,
) (net.Conn, error) {
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

// Port passes connections on from this machine's loopback to a port of a sandbox.
type Port struct {
	port uint16
	dial func(ctx context.Context, port uint16) (net.Conn, error)
}

// Of is the forward of a port of a named sandbox.
func Of(driver sandbox.Reacher, m *sandboxes.Manager, s sandboxes.Sandbox, port uint16) *Port {
	return &Port{
		port: port, dial: func(ctx context.Context, port uint16) (net.Conn, error) { return dialIn(ctx, driver, m, s, port) },
	}
}

// To is the forward of a port of one sandbox, by the number of its first process.
func To(driver sandbox.Reacher, pid int, port uint16) *Port {
	return &Port{port: port, dial: func(_ context.Context, port uint16) (net.Conn, error) { return dialOne(driver, pid, port) }}
}

// mine reports whether a program of this user or of root connected.
func mine(c net.Conn) bool {
	uid, err := identity.Peer(c)
	return err == nil && (uid == os.Geteuid() || uid == 0)
}

// Listen listens at a port of 127.0.0.1 and, where this machine has it, of ::1.
func (f *Port) Listen(local uint16) ([]net.Listener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err, Tip: fmt.Sprintf("give another, as in %d:0", f.port)}
	}
	if l, err = loopback.Mark(l); err != nil {
		return nil, err
	}
	all := []net.Listener{l}
	if six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))); err == nil {
		all = append(all, six)
	}
	return all, nil
}

// Accept forwards the connections of listeners, which it closes, until ctx ends.
func (f *Port) Accept(ctx context.Context, listeners []net.Listener) {
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

// pass copies one connection in both directions. It closes a connection that the sandbox does not answer, and those of
// other users of this machine.
func (f *Port) pass(ctx context.Context, from net.Conn) {
	defer from.Close()
	if !mine(from) {
		slog.Warn("another user's connection to a port of a sandbox was closed", "port", f.port)
		return
	}
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
