package app

import (
	"context"
	"log/slog"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
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

// contracts are those of an application, as its catalogue sees them.
type contracts struct{ app *App }

func (c contracts) Visible(name call.Capability) bool { return c.app.Policy.Visible(name) }

func (c contracts) Usable(name call.Capability, v catalog.Viewer) bool {
	return c.app.Policy.Usable(name, v.Principal, v.Channel) && c.app.Delegated.Lists(name, c.Of(name).Danger)
}

func (c contracts) Names(server, tool string) []call.Capability {
	return c.app.Policy.Names(server, tool)
}

func (c contracts) Of(name call.Capability) contract.Contract {
	k, _ := c.app.Policy.Lookup(name)
	return k
}

// texts hides what a model may not see of definitions.
type texts struct{ app *App }

func (t texts) Clean(text string) string { return t.app.Clean(text) }

func (t texts) Hide(tool call.Tool) (call.Tool, error) { return t.app.hide(tool) }

func (t texts) Epoch() any { return t.app.known.Epoch() }

// pins are the accepted definitions of an application.
type pins struct {
	app     *App
	gateway bool // whose first list does not wait, and which logs what it omits
}

func (p pins) Held(server string) []catalog.Problem { return p.app.held(server) }

func (p pins) Kept(server string) []call.Tool {
	if !p.gateway {
		return nil
	}
	return p.app.Upstreams.Accepted(server)
}

func (p pins) Missing(first catalog.Problem, n int) {
	if !p.gateway {
		return
	}
	slog.Warn("kept from agents: "+display.Count(n, "definition"), "server", first.Server, "code", first.Code, "first",
		LeftOut(first), "why", p.app.Clean(first.Text))
	if first.Code != "lock.new" {
		return
	}
	p.app.offerNew(context.Background(), first.Server)
	if server := p.app.lives.server.Load(); server != nil {
		server.NewTools(first.Capability, n)
	}
	slog.Warn("new definitions wait to be accepted", "server", first.Server, "hint",
		"waldo lock --show "+first.Server+", then waldo lock --accept "+first.Server)
}
