package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"waldo/internal/core/hold"
	"waldo/internal/executor/launch"
	"waldo/internal/model/call"
)

// fromCode is the pipeline of code in sandboxes. The configuration in force decides, which can be newer than the run's.
type fromCode struct{ *lives }

// Call runs the pipeline. It copies files between the code and a workspace server before and after the call.
func (f fromCode) Call(ctx context.Context, c call.Call) (call.Result, error) {
	now, done := f.Enter()
	defer done()
	k, _ := now.Policy.Lookup(c.Capability)
	server := k.Server
	if server == "" {
		server, _, _ = strings.Cut(string(c.Capability), ".")
	}
	if now.Config.Servers[server].Placement == launch.InWorkspace {
		now.shareFiles(c.Parent)
		defer now.shareFiles(c.Parent)
	}
	return now.Broker.Call(ctx, c)
}

// shareFiles copies files between a run under way and its session.
func (h *App) shareFiles(run string) {
	if err := h.Runner.Share(run); err != nil {
		slog.Warn("files of a run could not be shared", "call", run, "why", err)
	}
}

// Result returns the result of a held call of a program.
func (fromCode) Result(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error) {
	l := hold.Whose(ctx)
	if l == nil {
		return call.Result{}, errors.New("the writes of this program are not held")
	}
	return l.Result(ctx, run.Session, number, approvalID)
}

// Arrive gives a request of a program whose writes are held its place among them.
func (fromCode) Arrive(ctx context.Context) context.Context { return hold.Arrive(ctx) }

// Tools returns the tools that a run may see.
func (f fromCode) Tools(run call.Call) []call.Tool {
	return plain(f.inForce().Catalogue.List(context.Background(), viewOf(run)))
}

// Find returns the tool of a name.
func (f fromCode) Find(_ call.Call, name string) (call.Tool, bool) {
	e, ok := f.inForce().Catalogue.Lookup(context.Background(), name)
	if !ok {
		return call.Tool{}, false
	}
	return e.Tool, true
}

// Search returns the best tools for a query.
func (f fromCode) Search(run call.Call, query string, limit int) []call.Tool {
	found := plain(f.inForce().Catalogue.Search(context.Background(), viewOf(run), query, limit+1))
	return found[:min(limit, len(found))]
}

// Check returns the reason against arguments that do not fit the tool's schema.
func (f fromCode) Check(c call.Call, t call.Tool) *call.Reason { return f.inForce().Check(c, t) }
