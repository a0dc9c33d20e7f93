package app

import (
	"context"
	"encoding/json"
	"log/slog"

	"waldo/internal/core/audit"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/facts"
)

// egresses assembles the egress of sandboxes.
func (h *App) egresses() *sandboxegress.Assembler {
	return &sandboxegress.Assembler{
		State: h.State, Config: h.Config, Secret: h.secrets.Get, Record: h.reached,
	}
}

type EgressBody struct {
	Server   string          `json:"server"`
	Sandbox  string          `json:"sandbox"`
	Attempts []facts.Attempt `json:"attempts"`
}

// reached logs the network access that a server's sandbox attempted.
func (h *App) reached(server, sandbox string, tried []facts.Attempt) {
	body, err := json.Marshal(EgressBody{server, sandbox, tried})
	if err == nil {
		_, err = h.Log.Append(context.Background(), audit.KindEgress, body, false)
	}
	if err != nil {
		slog.Warn("network attempts of a server were not recorded", "server", server, "why", err)
	}
}
