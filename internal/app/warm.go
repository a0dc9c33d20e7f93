package app

import (
	"log/slog"

	"waldo/internal/core/session"
	"waldo/internal/model/call"
)

// WarmSandboxes limits the prewarmed sandboxes of a gateway. The pool adapts to demand.
const WarmSandboxes = 8

// firstSandboxes is the number of Python sandboxes prewarmed before the first request, so that a session's first run is
// not cold. Sandboxes of other languages cost more and wait for the first run.
const firstSandboxes = 2

// expect prewarms sandboxes for a new session, also of a principal over HTTP.
func (h *App) expect(n session.Info) {
	args, err := call.ParseArgs([]byte(`{"code":""}`))
	if err == nil {
		d := h.Policy.Decide(call.Call{
			Capability: "run_python", Args: args, Session: n.ID, Principal: n.Principal, Channel: "mcp",
		})
		err = h.Runner.Expect(d, firstSandboxes)
	}
	if err != nil {
		slog.Warn("warm sandboxes", "why", err)
	}
}
