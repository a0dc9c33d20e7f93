package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

// The catalogue as code in a sandbox sees it.

// viewOf returns the catalogue viewer for the code of a run.
func viewOf(run call.Call) catalog.Viewer {
	return catalog.Viewer{Principal: run.Principal, Channel: "bridge"}
}

// plain returns the tools that code can call: search_tools is a function there.
func plain(entries []*catalog.Entry) []call.Tool {
	tools := make([]call.Tool, 0, len(entries))
	for _, e := range entries {
		if e.Capability != catalog.SearchTools {
			tools = append(tools, e.Tool)
		}
	}
	return tools
}

// unlisted returns the reason against a call of a tool that its server does not list, so that no human is asked about
// it. It returns nil where the list is not known to be whole, and where no contract has the name: the policy decides.
func (h *App) unlisted(c call.Call) *call.Reason {
	server, tool, _ := strings.Cut(string(c.Capability), ".")
	if strings.Contains(tool, "/") { // a prompt or a resource, as prompts/get
		return nil
	}
	if k, ok := h.Policy.Lookup(c.Capability); !ok || k.Server != server || !h.Policy.Visible(c.Capability) {
		return nil
	}
	var names []string
	viewer := catalog.Viewer{Principal: c.Principal, Channel: c.Channel}
	for _, e := range h.Catalogue.List(context.Background(), viewer) {
		if of, name, _ := strings.Cut(string(e.Capability), "."); of == server {
			names = append(names, name)
		}
	}
	partial := slices.ContainsFunc(h.Catalogue.Problems(), func(p catalog.Problem) bool { return p.Server == server })
	if len(names) == 0 || partial {
		return nil
	}
	text := fmt.Sprintf("server %s has no tool %q", server, tool)
	if near := display.Meant(tool, names); near != "" {
		text += ": " + near
	}
	return &call.Reason{Code: "upstream.no_tool", Text: text}
}
