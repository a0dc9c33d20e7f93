package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"waldo/internal/app/fault"
	"waldo/internal/core/session"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/workspace"
)

// Once makes one call in a new session.
func (h *App) Once(ctx context.Context, capability call.Capability, args any, o *runner.Options) (call.Result, error) {
	a, err := call.ArgsOf(args)
	if err != nil {
		return call.Result{}, fault.Usage("", "%v", err)
	}
	n, done, err := h.openOnce(ctx, capability)
	if err != nil {
		return call.Result{}, err
	}
	defer done()
	c := call.Call{
		ID: id.New(id.Call), Capability: capability, Args: a, Session: n.ID, Principal: n.Principal,
		Channel: "cli",
	}
	if o != nil {
		c.Run = o.Request()
		defer h.Runner.Attach(c.ID, o.Streams)()
	}
	r, err := h.Broker.Call(ctx, c)
	if err == nil && len(r.Facts.Files.Artifacts) > 0 {
		r.Facts.Files.KeptIn, err = h.keptIn(n.ID)
	}
	return r, err
}

// openOnce opens a session for one call. A program whose writes are held is called again after the yes, so it is in the
// session that all calls of this user share.
func (h *App) openOnce(ctx context.Context, capability call.Capability) (n session.Info, done func(), err error) {
	if k, _ := h.Policy.Lookup(capability); k.Hold {
		n, err = h.OpenCLI(ctx)
		return n, func() {}, err
	}
	n, err = h.OpenSession()
	return n, func() { h.Tidy(n); h.Sessions.Close(n.ID) }, err
}

// keptIn returns the host folder with the files that a session's runs saved.
func (h *App) keptIn(n call.Session) (string, error) {
	w, err := h.Runner.Means.Workspace(n)
	if err != nil {
		return "", err
	}
	defer w.Close()
	return filepath.Abs(filepath.Dir(w.Path(workspace.Output)))
}

// Tidy removes the workspace of a session if it has no saved files.
func (h *App) Tidy(n session.Info) {
	if _, err := os.Stat(filepath.Join(h.State, "workspaces", n.Workspace)); err != nil {
		return
	}
	w, err := workspace.Open(filepath.Join(h.State, "workspaces"), n.Workspace)
	if err != nil {
		return
	}
	if kept, err := w.List(workspace.Output, 1); err != nil || len(kept) > 0 {
		w.Close()
		return
	}
	if err := w.Destroy(); err != nil {
		slog.Warn("an empty workspace was left", "workspace", n.Workspace, "why", err)
	}
}
