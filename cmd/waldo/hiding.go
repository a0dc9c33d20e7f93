package main

import (
	"errors"
	"io"
	"runtime/debug"

	"waldo/internal/core/redact"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// hiding masks known secrets in the output of waldo itself: errors, log lines, a crash. Each Write must be a whole
// message.
type hiding struct {
	w     io.Writer
	known *redact.Registry
}

func (h hiding) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.known.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// logged writes each Write, a whole line, to the log.
type logged struct{ w io.Writer }

func (l logged) Write(b []byte) (int, error) {
	if _, err := io.WriteString(l.w, string(display.Lines(string(b)))+"\n"); err != nil {
		return 0, err
	}
	return len(b), nil
}

// crashed prints a fault of waldo itself and returns its exit code.
func crashed(w io.Writer, fault any) int {
	display.Fprintf(w, "waldo: a fault of waldo's own: %v\n%s\n", fault, display.Lines(string(debug.Stack())))
	return exitFailed
}

// told removes injected secrets from the tools of a server, which can repeat them anywhere in a schema.
func (h *application) told(tools []call.Tool, err error) ([]call.Tool, error) {
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
func (h *application) held(server string) (out []catalog.Problem) {
	for _, q := range h.upstreams.Quarantined(server) {
		out = append(out, catalog.Problem{Server: server, Capability: q.Capability, Item: q.Name, Code: q.Code, Text: q.Text})
	}
	return out
}
