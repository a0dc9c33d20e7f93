package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"waldo/internal/executor/upstream/content"
	"waldo/internal/model/call"
	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Limits on a server's lists.
const (
	maxPages     = 200
	maxTools     = 5000
	maxListBytes = 16 << 20
)

// toList returns a running session, a context bounded by the start timeout, and a function that releases the session.
func (s *server) toList(ctx context.Context) (*session, context.Context, func(), error) {
	ses, release, err := s.use(ctx)
	if err != nil {
		return nil, ctx, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.m.o.Start)
	return ses, ctx, func() { cancel(); release() }, nil
}

// list asks a server for all its tools and holds them against what was accepted or seen before.
func (s *server) list(ctx context.Context) (*session, error) {
	ses, ctx, over, err := s.toList(ctx)
	if err != nil {
		return nil, err
	}
	defer over()
	found, err := ses.pages(ctx, "tools/list", "tools")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins.take(s.cfg, ses.name, s.definitions(found), s.m.lock.Load())
	return ses, nil
}

// definitions reads a list of the server's tools. It quarantines tools that cannot be called.
func (s *server) definitions(list []strictjson.Value) []*definition {
	defs := s.nameable("tool.name", definitions(s.cfg.Name, list))
	if s.cfg.URL != "" {
		for _, d := range defs {
			if err := mcphttp.Headers(d.tool.Input); err != nil { // MCP 2026-07-28 basic/transports/streamable-http
				d.quarantine("tool.header", err.Error())
			}
		}
	}
	return defs
}

// nameable quarantines definitions whose names hold a part of a secret: a name cannot be masked.
func (s *server) nameable(code string, defs []*definition) []*definition {
	for _, d := range defs {
		if c := s.m.o.Cleaner; c != nil && c.Part(d.name) {
			d.quarantine(code, "the name holds a part of a secret")
		}
	}
	return defs
}

// pages requests a whole list, which has the given key in the answers.
func (ses *session) pages(ctx context.Context, method, key string) ([]strictjson.Value, error) {
	var found []strictjson.Value
	var cursor strictjson.Value
	total, seen := 0, map[string]bool{}
	for page := 0; ; page++ {
		params := map[string]any{}
		if !cursor.IsZero() {
			params["cursor"] = cursor
		}
		v, err := ses.ask(ctx, method, params)
		if bad := (*jsonrpc.MalformedResponse)(nil); errors.As(err, &bad) && !bad.Shallow.IsZero() {
			v, err = bad.Shallow, nil // definitions quarantines the entries that it cuts
		}
		if err != nil {
			return nil, fmt.Errorf("server %s: %s: %w", ses.s.cfg.Name, method, err)
		}
		members, _ := v.Members()
		list, ok := members[key].Elements()
		if !ok {
			return nil, fmt.Errorf("server %s: %s: %w", ses.s.cfg.Name, method, &jsonrpc.MalformedResponse{Why: "it holds no list of " + key})
		}
		found = append(found, list...)
		total += len(v.Raw())
		next, more := members["nextCursor"].Text()
		if !more || next == "" {
			return found, nil
		}
		if seen[next] || page >= maxPages || len(found) > maxTools || total > maxListBytes {
			return nil, fmt.Errorf("server %s: %s does not end", ses.s.cfg.Name, method)
		}
		seen[next], cursor = true, members["nextCursor"]
	}
}

// definition is one tool, prompt or template of resources as a server gave it.
type definition struct {
	name  string           // the server's own
	tool  call.Tool        // of a prompt or template only Capability and Digest are set
	offer bool             // a prompt or template, not a tool
	raw   strictjson.Value // as it came
	why   string           // why it is in quarantine; empty: it is not
	code  string
}

// tooDeep is in a definition of which a part was left out.
var tooDeep = []byte(`"` + strictjson.TooDeep + `"`)

// definitions reads the tools of a list. It quarantines a tool with an invalid or duplicate name, because an approval
// could not say which one it is for, and a tool that was not read whole.
func definitions(server string, list []strictjson.Value) []*definition {
	var out []*definition
	byName := map[string]*definition{}
	for _, v := range list {
		m, ok := v.Members()
		if !ok {
			continue
		}
		name, _ := m["name"].Text()
		d := &definition{name: name, raw: v, tool: call.Tool{Capability: call.Capability(server + "." + name), Input: m["inputSchema"],
			Output: m["outputSchema"], Annotations: m["annotations"], Server: server, Digest: v.Digest()}}
		d.tool.Title, _ = m["title"].Text()
		d.tool.Description, _ = m["description"].Text()
		if first := byName[name]; first != nil {
			first.quarantine("tool.twice", "the server lists two tools of this name")
			continue
		}
		byName[name] = d
		if bytes.Contains(v.Raw(), tooDeep) {
			d.raw = nameAlone(name) // what is left would nest deeper than a lock may
			d.tool.Digest = d.raw.Digest()
			d.quarantine("tool.deep", fmt.Sprintf("its definition nests deeper than %d", strictjson.MaxDepth))
		}
		if !content.Named(name) {
			d.quarantine("tool.name", "the name holds more than letters, digits, '_', '-' and '.', or more than 128 of them")
		}
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

func (d *definition) quarantine(code, why string) {
	if d.why == "" {
		d.code, d.why = code, why
	}
}

// nameAlone is the definition of a tool of which nothing but its name is kept.
func nameAlone(name string) strictjson.Value {
	b, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return strictjson.Value{}
	}
	v, _ := strictjson.Parse(b) // of a text that is UTF-8
	return v
}
