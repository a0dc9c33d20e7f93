package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"

	"waldo/internal/executor/upstream"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// placedInWorkspace is the placement of a server that has the files of its session.
const placedInWorkspace = "workspace"

// inWorkspace runs an upstream in a box with the files of one session: it sees its input as it is, and
// has its output together with the session's scripts. The one that is asked for its tools before there
// is a session has a workspace of nobody's, which is empty.
func (h *house) inWorkspace(ctx context.Context, s contract.Server, n call.Session, argv []string, mounts []sandbox.Mount, env []string) (upstream.Process, error) {
	if n == "" {
		return h.inOwnBox(ctx, s, argv, mounts, env, nil)
	}
	ws, err := h.runner.Workspace(n)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: the workspace of its session: %w", s.Name, err)
	}
	mounts = append(mounts, sandbox.Mount{Source: ws.Path(workspace.Input), Target: "/workspace/input"})
	p, err := h.inOwnBox(ctx, s, argv, mounts, env, ws)
	return p, errors.Join(err, ws.Close()) // the files stay, and are opened by their path
}

// sharing returns what brings the files of a box and those of a workspace together; nil: there is none.
func sharing(box sandbox.Box, ws *workspace.Workspace) func() ([]string, error) {
	if ws == nil {
		return nil
	}
	dir := ws.Path(workspace.Output)
	return func() ([]string, error) {
		give := box.Abilities().Share
		if give == nil {
			return nil, errors.New("a sandbox of this isolation shares no files")
		}
		given, err := give("/workspace/output", dir)
		for i, g := range given {
			given[i] = path.Join(string(workspace.Output), g)
		}
		return given, err
	}
}

// during is a share until its context is over: then what is left was taken.
func during(run context.Context, share func() ([]string, error)) func() ([]string, error) {
	if share == nil {
		return nil
	}
	return func() ([]string, error) {
		if run.Err() != nil {
			return nil, nil
		}
		return share()
	}
}

// shared is the corridor for the code in a box: a server of its session's workspace has the files that
// the code has written by now, and the code has the server's afterwards. The configuration in force decides,
// which may be newer than the run.
func (h *house) shared(ctx context.Context, c call.Call) (call.Result, error) {
	now, done := h.lives.enter()
	defer done()
	k, _ := now.policy.Lookup(c.Capability)
	server := k.Server
	if server == "" {
		server, _, _ = strings.Cut(string(c.Capability), ".")
	}
	if now.cfg.Servers[server].Placement == placedInWorkspace {
		h.share(c.Parent)
		defer h.share(c.Parent)
	}
	return now.broker.Call(ctx, c)
}

func (h *house) share(run string) {
	if err := h.runner.Share(run); err != nil {
		slog.Warn("files of a run could not be shared", "call", run, "why", err)
	}
}
