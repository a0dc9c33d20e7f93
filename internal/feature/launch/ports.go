package launch

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"

	"waldo/internal/app"
	"waldo/internal/app/forward"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
)

// ports are listeners at this machine's loopback for ports of a session.
type ports []listening

type listening struct {
	port uint16
	at   []net.Listener
}

// listen listens before the session starts, so that a port that is taken is an error.
func (p plan) listen(w io.Writer) (all ports, err error) {
	for _, n := range p.ports {
		at, err := forward.To(nil, 0, n[0]).Listen(n[1])
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, listening{n[0], at})
		display.Fprintf(w, "waldo: http://%s is port %d of the session\n", at[0].Addr(), n[0])
	}
	return all, nil
}

// forward records each port and passes its connections on to the sandbox of a call, until over is called.
func (all ports) forward(ctx context.Context, h *app.App, c call.Call, p plan, sb sandbox.Sandbox) (over func()) {
	ctx, cancel := context.WithCancel(ctx)
	var each sync.WaitGroup
	for _, l := range all {
		b := app.PortBody{CallID: c.ID, Session: string(c.Session), Principal: string(c.Principal), Port: l.port}
		if err := h.RecordPort(ctx, b, l.at[0]); err != nil {
			slog.Error(err.Error())
			ports{l}.close()
			continue
		}
		f := forward.To(h.Reacher(p.contract.Isolation), sb.Abilities().PID(), l.port)
		each.Go(func() { f.Accept(ctx, l.at) })
	}
	return func() { cancel(); each.Wait() }
}

func (all ports) close() {
	for _, l := range all {
		for _, at := range l.at {
			_ = at.Close()
		}
	}
}
