package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/session"
)

// Where a session has what waldo shows it.
const (
	homeAt    = "/waldo/home"
	sessionAt = exitcode.SessionAt
	waldoAt   = "/waldo/bin/waldo"
	socket    = "mcp.sock"
)

// gate is the socket at which the host in a sandbox finds waldo. Each connection is one MCP client of the session.
type gate struct {
	listener *net.UnixListener
	all      sync.WaitGroup
	stop     context.CancelFunc
}

// maxClients bounds the MCP clients of one session at a time.
const maxClients = 16

// open listens in the session's folder. Only the sandbox is shown that folder.
func open(ctx context.Context, h *app.App, n session.Info, dir string) (*gate, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	at := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), socket) // the address of a socket has at most 107 bytes
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)                                           // it goes with its folder
	if err := os.Chmod(filepath.Join(dir, socket), 0o666); err != nil { // the folders above are the owner's alone
		return nil, errors.Join(err, l.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	g := &gate{listener: l, stop: stop}
	room := make(chan struct{}, maxClients)
	g.all.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return // closed
			}
			select {
			case room <- struct{}{}:
			default:
				_ = conn.Close()
				continue
			}
			g.all.Go(func() {
				defer func() { <-room }()
				defer conn.Close()
				end := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer end()
				if err := h.ServeIn(ctx, n, conn); err != nil && ctx.Err() == nil {
					slog.Debug("an MCP client of the session ended", "why", err)
				}
			})
		}
	})
	return g, nil
}

// close ends every client.
func (g *gate) close() {
	g.stop()
	_ = g.listener.Close()
	g.all.Wait()
}

// relay is the MCP server that the host starts inside: it joins its standard streams with the socket.
func relay(in io.Reader, out io.Writer) error {
	conn, err := net.Dial("unix", filepath.Join(sessionAt, socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, in)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_, err = io.Copy(out, conn)
	return err
}
