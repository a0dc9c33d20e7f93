package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"waldo/internal/core/redact"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/facts"
)

// egresses assembles the egress of sandboxes.
func (h *application) egresses() *sandboxegress.Assembler {
	return &sandboxegress.Assembler{State: h.state, Config: h.cfg, Secret: h.secrets.Get, Forms: redact.Forms, Record: h.reached}
}

// kindEgress is the kind of records about network access of a server's sandbox.
const kindEgress = "egress"

type egressBody struct {
	Server   string          `json:"server"`
	Sandbox  string          `json:"sandbox"`
	Attempts []facts.Attempt `json:"attempts"`
}

// reached logs the network access that a server's sandbox attempted.
func (h *application) reached(server, sandbox string, tried []facts.Attempt) {
	body, err := json.Marshal(egressBody{server, sandbox, tried})
	if err == nil {
		_, err = h.log.Append(context.Background(), kindEgress, body, false)
	}
	if err != nil {
		slog.Warn("network attempts of a server were not recorded", "server", server, "why", err)
	}
}
