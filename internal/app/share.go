package app

import (
	"context"
	"log/slog"
	"strings"

	"waldo/internal/executor/launch"
	"waldo/internal/model/call"
)

// callFromSandbox runs the pipeline for code in a sandbox. It copies files between the code and a workspace server
// before and after the call. The current configuration decides, which can be newer than the run.
func (h *App) callFromSandbox(ctx context.Context, c call.Call) (call.Result, error) {
	now, done := h.lives.Enter()
	defer done()
	k, _ := now.Policy.Lookup(c.Capability)
	server := k.Server
	if server == "" {
		server, _, _ = strings.Cut(string(c.Capability), ".")
	}
	if now.Config.Servers[server].Placement == launch.InWorkspace {
		h.shareFiles(c.Parent)
		defer h.shareFiles(c.Parent)
	}
	return now.Broker.Call(ctx, c)
}

func (h *App) shareFiles(run string) {
	if err := h.Runner.Share(run); err != nil {
		slog.Warn("files of a run could not be shared", "call", run, "why", err)
	}
}
