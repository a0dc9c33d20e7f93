package main

import (
	"log/slog"
	"time"

	"waldo/internal/core/session"
	"waldo/internal/model/call"
)

// warmBoxes is how many boxes a gateway keeps ready at most. The pool adapts to what is asked for.
const warmBoxes = 8

// firstBoxes is how many boxes for Python are made before anybody asks, so that the first run of a
// session is not cold. Those of other languages, which cost more, wait for the first run.
const firstBoxes = 2

// expect makes boxes ready for a session that has begun, also a principal's over HTTP.
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
