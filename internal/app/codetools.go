package app

import (
	"context"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
)

// The catalogue as code in a sandbox sees it.

func (h *App) tools(run call.Call) []call.Tool {
	return plain(h.Catalogue.List(context.Background(), viewOf(run)))
}

// viewOf returns the catalogue viewer for the code of a run.
func viewOf(run call.Call) catalog.Viewer {
	return catalog.Viewer{Principal: run.Principal, Channel: "bridge"}
}

func (h *App) find(_ call.Call, name string) (call.Tool, bool) {
	e, ok := h.Catalogue.Lookup(context.Background(), name)
	if !ok {
		return call.Tool{}, false
	}
	return e.Tool, true
}

func (h *App) search(run call.Call, words string, most int) []call.Tool {
	found := plain(h.Catalogue.Search(context.Background(), viewOf(run), words, most+1))
	return found[:min(most, len(found))]
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
