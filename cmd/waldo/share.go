package main

import (
	"context"
	"log/slog"
	"strings"

	"waldo/internal/executor/launch"
	"waldo/internal/model/call"
)

// shared is the corridor for the code in a box: a server of its session's workspace has the files that
// the code has written by now, and the code has the server's afterwards. The configuration in force decides,
// which may be newer than the run.
func (h *application) shared(ctx context.Context, c call.Call) (call.Result, error) {
	now, done := h.lives.Enter()
	defer done()
	k, _ := now.policy.Lookup(c.Capability)
	server := k.Server
	if server == "" {
		server, _, _ = strings.Cut(string(c.Capability), ".")
	}
	if now.cfg.Servers[server].Placement == launch.InWorkspace {
		h.share(c.Parent)
		defer h.share(c.Parent)
	}
	return now.broker.Call(ctx, c)
}

func (h *application) share(run string) {
	if err := h.runner.Share(run); err != nil {
		slog.Warn("files of a run could not be shared", "call", run, "why", err)
	}
}
