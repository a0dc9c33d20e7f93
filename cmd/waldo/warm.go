package main

import (
	"log/slog"
	"time"

	"waldo/internal/core/session"
	"waldo/internal/model/call"
)

// warmBoxes limits the prewarmed sandboxes of a gateway. The pool adapts to demand.
const warmBoxes = 8

// firstBoxes is the number of Python sandboxes prewarmed before the first request, so that a session's first run is
// not cold. Sandboxes of other languages cost more and wait for the first run.
const firstBoxes = 2

// expect prewarms sandboxes for a new session, also of a principal over HTTP.
func (h *application) expect(n session.Info) {
	args, err := call.ParseArgs([]byte(`{"code":""}`))
	if err == nil {
		d := h.policy.Decide(call.Call{Capability: "run_python", Args: args, Session: n.ID, Principal: n.Principal, Channel: "mcp", At: time.Now()})
		err = h.runner.Expect(d, firstBoxes)
	}
	if err != nil {
		slog.Warn("warm sandboxes", "why", err)
	}
}
