package app

import (
	"context"
	"errors"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// hide removes injected secrets from the tools of a server, which can repeat them anywhere in a schema.
func (h *App) hide(tools []call.Tool, err error) ([]call.Tool, error) {
	for i := range tools {
		for _, v := range []*strictjson.Value{&tools[i].Input, &tools[i].Output, &tools[i].Annotations} {
			if v.IsZero() {
				continue
			}
			hidden, bad := strictjson.Parse(h.known.JSON(v.Raw()))
			if bad != nil {
				return nil, errors.Join(err, bad)
			}
			*v = hidden
		}
	}
	return tools, err
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
	tools, err := h.hide(h.Upstreams.Tools(ctx, server))
	return tools, h.held(server), err
}
