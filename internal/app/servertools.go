package app

import (
	"context"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// hide hides known secrets and the configuration's classes in the schemas of a tool. A server can repeat them anywhere
// there.
func (h *App) hide(t call.Tool) (call.Tool, error) {
	for _, v := range []*strictjson.Value{&t.Input, &t.Output, &t.Annotations} {
		if v.IsZero() {
			continue
		}
		hidden, err := strictjson.Parse(h.Redact.DefinitionJSON(v.Raw()))
		if err != nil {
			return t, err
		}
		*v = hidden
	}
	return t, nil
}

// held returns the definitions of a server that are hidden from agents, with reasons.
func (h *App) held(server string) (out []catalog.Problem) {
	for _, q := range h.Upstreams.Quarantined(server) {
		out = append(out, catalog.Problem{Server: server, Capability: q.Capability, Item: q.Name, Code: q.Code, Text: q.Text})
	}
	return out
}

// Defined returns the tools of a server as agents would see their definitions, and those that are hidden from agents.
// It starts the server if need be.
func (h *App) Defined(ctx context.Context, server string) ([]call.Tool, []catalog.Problem, error) {
	tools, err := h.Upstreams.Tools(ctx, server)
	var out []call.Tool
	for _, t := range tools {
		t, bad := h.hide(t)
		if bad != nil {
			return nil, nil, bad
		}
		t.Title, t.Description = h.Clean(t.Title), h.Clean(t.Description)
		out = append(out, t)
	}
	return out, h.held(server), err
}
