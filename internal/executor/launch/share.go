package launch

import (
	"context"
	"errors"
	"fmt"
	"path"

	"waldo/internal/executor/upstream"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// InWorkspace is the placement of a server that has the files of its session.
const InWorkspace = "workspace"

// inWorkspace starts a server in a sandbox with one session's files: its input read-only, and an output shared with
// its scripts. Without a session the workspace is empty.
func (l *Launcher) inWorkspace(
	ctx context.Context, s contract.Server, n call.Session, argv []string, mounts []sandbox.Mount, env []string,
) (upstream.Process, error) {
	if n == "" {
		return l.inSandbox(ctx, s, argv, mounts, env, nil)
	}
	ws, err := l.Workspace(n)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: the workspace of its session: %w", s.Name, err)
	}
	mounts = append(mounts, sandbox.Mount{Source: ws.Path(workspace.Input), Target: "/workspace/input"})
	p, err := l.inSandbox(ctx, s, argv, mounts, env, ws)
	return p, errors.Join(err, ws.Close()) // the files stay, and are opened by their path
}

// sharing returns a function that syncs the output of a sandbox with that of a workspace; nil without a workspace.
func sharing(sb sandbox.Sandbox, ws *workspace.Workspace) func() ([]string, error) {
	if ws == nil {
		return nil
	}
	dir := ws.Path(workspace.Output)
	return func() ([]string, error) {
		give := sb.Abilities().Share
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

// during is a share that does nothing once its context is done: the last sync has taken the rest.
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
