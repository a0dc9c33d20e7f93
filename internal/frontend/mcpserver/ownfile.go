package mcpserver

import (
	"context"
	"net/url"
	"strings"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/protocol/jsonrpc"
)

// ownFile returns the name of a file of the session's workspace, of an address such as
// waldo:///output/chart.png.
func ownFile(uri string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(uri, "waldo:///")
	if !ok {
		return "", false
	}
	name, err := url.PathUnescape(rest)
	return name, err == nil && name != ""
}

// readOwn answers resources/read for a file of the session's workspace: a call of read_output like any other.
func (s *Session) readOwn(ctx context.Context, m jsonrpc.Message, h *host, uri, name string) (map[string]any, error) {
	r, err := s.callOf(ctx, m, h, catalog.ReadOutput, map[string]any{"name": name})
	if err != nil {
		return nil, err
	}
	for _, why := range r.Why {
		if why.Code == "files.absent" {
			return nil, notFound(h.p != nil, uri)
		}
	}
	if err := refusal(r); err != nil {
		return nil, err
	}
	contents := []any{}
	for _, b := range r.Content {
		members, _ := b.Raw.Members()
		switch b.Type {
		case "image":
			contents = append(contents, map[string]any{"uri": uri, "mimeType": members["mimeType"], "blob": members["data"]})
		case "resource":
			contents = append(contents, members["resource"])
		default:
			contents = append(contents, map[string]any{"uri": uri, "mimeType": "text/plain", "text": b.Text})
		}
	}
	return resources(h, contents, r), nil
}
