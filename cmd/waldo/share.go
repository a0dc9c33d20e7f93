package main

import (
	"context"
	"log/slog"
	"strings"

	"waldo/internal/executor/launch"
	"waldo/internal/model/call"
)

// shared runs the pipeline for code in a sandbox. It copies files between the code and a workspace server before and
// after the call. The current configuration decides, which can be newer than the run.
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
