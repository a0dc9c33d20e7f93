package mcpserver

import (
	"context"
	"encoding/base64"
	"sort"
	"strings"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// items answers prompts/list, resources/list and resources/templates/list, a page at a time. A cursor
// is the name of the last one of the page before.
func (s *Session) items(m jsonrpc.Message, key string, list []*catalog.Item, modern bool) (map[string]any, error) {
	after := ""
	if c := m.Param("cursor"); !c.IsZero() {
		text, _ := c.Text()
		name, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(name) == 0 {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the cursor is not one of ours")
		}
		after = string(name)
	}
	begin := sort.Search(len(list), func(i int) bool { return list[i].Wire > after })
	page := list[begin:min(begin+pageSize, len(list))]
	shown := make([]any, len(page))
	for i, item := range page {
		shown[i] = item.Show()
	}
	result := map[string]any{key: shown}
	if begin+len(page) < len(list) {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1].Wire))
	}
	if modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	return result, nil
}

// offer answers what has to do with prompts and resources; false for every other method.
func (s *Session) offer(
	ctx context.Context, m jsonrpc.Message, modern bool, link Link,
) (result map[string]any, ok bool, err error) {
	o := s.d.lists()
	prompts, resources := o.Offered()
	switch {
	case m.Method == "prompts/list" && prompts:
		result, err = s.items(m, "prompts", s.current(ctx, o.Prompts), modern)
	case m.Method == "resources/list" && resources:
		result, err = s.items(m, "resources", s.current(ctx, o.Resources), modern)
	case m.Method == "resources/templates/list" && resources:
		result, err = s.items(m, "resourceTemplates", s.current(ctx, o.Templates), modern)
	case m.Method == "prompts/get" && prompts:
		result, err = s.asked(ctx, m, modern, link, s.prompt)
	case m.Method == "resources/read" && resources:
		result, err = s.asked(ctx, m, modern, link, s.read)
	case m.Method == "completion/complete" && (prompts || resources):
		result, err = s.asked(ctx, m, modern, link, s.complete)
	case m.Method == "resources/subscribe" && resources && !modern:
		result, err = map[string]any{}, s.subscribe(ctx, m.Param("uri"), false)
	case m.Method == "resources/unsubscribe" && resources && !modern:
		result, err = map[string]any{}, s.subscribe(ctx, m.Param("uri"), true)
	default:
		return nil, false, nil
	}
	return result, true, err
}

// current returns a list of offers, and remembers how new what the client sees is.
func (s *Session) current(
	ctx context.Context, list func(ctx context.Context, v catalog.Viewer) []*catalog.Item,
) []*catalog.Item {
	seen := s.d.lists().Versions()
	items := list(ctx, s.viewer())
	if now := s.d.lists().Versions(); now != seen { // it was the first to ask
		seen, items = now, list(ctx, s.viewer())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Prompts, s.seen.Resources = seen.Prompts, seen.Resources
	return items
}

// asked answers a request that reaches a server, which may ask the client back.
func (s *Session) asked(
	ctx context.Context, m jsonrpc.Message, modern bool, link Link,
	run func(ctx context.Context, m jsonrpc.Message, h *host) (map[string]any, error),
) (map[string]any, error) {
	if modern {
		return s.suspend(ctx, m, link, func(ctx context.Context, h *host) (map[string]any, error) { return run(ctx, m, h) })
	}
	ctx, h := s.hosted(ctx, m, false, link)
	defer h.end()
	return run(ctx, m, h)
}

// callOf builds a call of a server's prompt or resource and sends it through the pipeline.
func (s *Session) callOf(
	ctx context.Context, m jsonrpc.Message, h *host, capability call.Capability, args map[string]any,
) (call.Result, error) {
	a, err := call.ArgsOf(args)
	if err != nil {
		return call.Result{}, jsonrpc.Errorf(jsonrpc.CodeParams, "the parameters are too large")
	}
	c := call.Call{
		ID: id.New(id.Call), Capability: capability, Args: a, Session: s.who.Session, Principal: s.who.Principal,
		Channel: channel, Agent: s.calling(m), Delegation: delegationOf(m), Proof: call.Proof(m.Proof),
	}
	return s.relay(ctx, m, c, h)
}

func notFound(modern bool, uri string) error {
	code := jsonrpc.CodeParams
	if !modern {
		code = jsonrpc.CodeNoResource
	}
	e := jsonrpc.Errorf(code, "resource not found")
	if data, err := call.ArgsOf(map[string]string{"uri": uri}); err == nil {
		e.Data = data.Value()
	}
	return e
}

// read answers resources/read.
func (s *Session) read(ctx context.Context, m jsonrpc.Message, h *host) (map[string]any, error) {
	uri, _ := m.Param("uri").Text()
	if name, ok := ownFile(uri); ok {
		return s.readOwn(ctx, m, h, uri, name)
	}
	server, own, ok := s.d.lists().Inner(uri)
	if !ok {
		return nil, notFound(h.p != nil, uri)
	}
	r, err := s.callOf(ctx, m, h, catalog.Of(server, catalog.ReadResource), map[string]any{"uri": own})
	if err != nil {
		return nil, err
	}
	if r.Fault != nil && r.Fault.Code == jsonrpc.CodeNoResource {
		return nil, notFound(h.p != nil, uri)
	}
	if err := refusal(r); err != nil {
		return nil, err
	}
	contents := []any{}
	for _, b := range r.Content {
		block, _ := s.outer(server, b.Raw).(map[string]any)
		if resource := block["resource"]; resource != nil {
			contents = append(contents, resource)
		} else {
			contents = append(contents, map[string]any{"uri": uri, "mimeType": "text/plain", "text": b.Text})
		}
	}
	return resources(h, contents, r), nil
}

// resources is the result of resources/read, which no client keeps for others.
func resources(h *host, contents []any, r call.Result) map[string]any {
	result := map[string]any{"contents": contents, "_meta": r.Meta()}
	if h.p != nil {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	return result
}

// prompt answers prompts/get.
func (s *Session) prompt(ctx context.Context, m jsonrpc.Message, h *host) (map[string]any, error) {
	name, _ := m.Param("name").Text()
	item, ok := s.d.lists().Prompt(ctx, name)
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "unknown prompt: %.100q", name)
	}
	args := map[string]any{"name": item.Name}
	if a := m.Param("arguments"); !a.IsZero() && a.Kind() != 'n' {
		if a.Kind() != '{' {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "arguments are an object")
		}
		args["arguments"] = a
	}
	r, err := s.callOf(ctx, m, h, catalog.Of(item.Server, catalog.GetPrompt), args)
	if err != nil {
		return nil, err
	}
	if err := refusal(r); err != nil {
		return nil, err
	}
	got, _ := r.Structured.Members()
	messages, ok := got["messages"].Elements()
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal,
			"waldo: the prompt is larger than response_budget_bytes of its contract, or has no messages")
	}
	shown := []any{}
	for _, v := range messages {
		one, _ := v.Members()
		shown = append(shown, map[string]any{"role": one["role"], "content": s.block(item.Server, one["content"])})
	}
	result := map[string]any{"messages": shown, "_meta": r.Meta()}
	if d := got["description"]; !d.IsZero() {
		result["description"] = d
	}
	return result, nil
}

// complete answers completion/complete.
func (s *Session) complete(ctx context.Context, m jsonrpc.Message, h *host) (map[string]any, error) {
	ref, _ := m.Param("ref").Members()
	kind, _ := ref["type"].Text()
	server, args := "", map[string]any{"argument": m.Param("argument")}
	switch kind {
	case "ref/prompt":
		name, _ := ref["name"].Text()
		if item, ok := s.d.lists().Prompt(ctx, name); ok {
			server, args["ref"] = item.Server, map[string]any{"type": kind, "name": item.Name}
		}
	case "ref/resource":
		uri, _ := ref["uri"].Text()
		if of, own, ok := s.d.lists().Inner(uri); ok {
			server, args["ref"] = of, map[string]any{"type": kind, "uri": own}
		}
	}
	if server == "" {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "ref names no prompt and no resource")
	}
	if c := m.Param("context"); !c.IsZero() {
		args["context"] = c
	}
	r, err := s.callOf(ctx, m, h, catalog.Of(server, catalog.Complete), args)
	if err != nil {
		return nil, err
	}
	if err := refusal(r); err != nil {
		return nil, err
	}
	got, _ := r.Structured.Members()
	if got["completion"].IsZero() {
		return map[string]any{"completion": map[string]any{"values": []string{}}}, nil
	}
	return map[string]any{"completion": got["completion"]}, nil
}

// maxSubscriptions is how many resources one session may be told of.
const maxSubscriptions = 200

// subscribe begins or ends telling a session of changes to a resource.
func (s *Session) subscribe(ctx context.Context, v strictjson.Value, end bool) error {
	uri, _ := v.Text()
	server, own, ok := s.d.lists().Inner(uri)
	if !ok {
		return notFound(false, uri)
	}
	s.mu.Lock()
	n, full := s.subs[uri], len(s.subs) >= maxSubscriptions
	s.mu.Unlock()
	switch {
	case end && n != 1: // not subscribed, or another subscription still wants it
		s.count(uri, -1)
		return nil
	case !end && n > 0:
		s.count(uri, 1)
		return nil
	case !end && full:
		return jsonrpc.Errorf(jsonrpc.CodeBusy, "at most %d resources may be subscribed to", maxSubscriptions)
	}
	args := map[string]any{"uri": own}
	if end {
		args["unsubscribe"] = true
	}
	r, err := s.callOf(ctx, jsonrpc.Message{}, nil, catalog.Of(server, catalog.Subscribe), args)
	if err != nil {
		return err
	}
	if err := refusal(r); err != nil {
		return err
	}
	if end {
		s.count(uri, -1)
	} else {
		s.count(uri, 1)
	}
	return nil
}

func (s *Session) count(uri string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[uri] += by; s.subs[uri] <= 0 {
		delete(s.subs, uri)
	}
}

// Updated tells every session that wants to know that a server's resource is another now.
func (d *Server) Updated(server, own string) {
	uri := d.lists().Outer(server, own)
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.sessions {
		s.updated(uri)
	}
}

func (s *Session) updated(uri string) {
	const method = "notifications/resources/updated"
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listening {
		if wants(l.uris, uri) {
			l.link.Notify(method, map[string]any{"uri": uri, "_meta": map[string]any{jsonrpc.MetaSubscription: l.id}})
		}
	}
	if s.ready && wants(s.subs, uri) {
		s.stream.Notify(method, map[string]any{"uri": uri})
	}
}

// wants reports whether a resource, or one that it is a part of, is among those.
func wants(uris map[string]int, uri string) bool {
	for u := range uris {
		if u == uri || strings.HasPrefix(uri, strings.TrimSuffix(u, "/")+"/") {
			return true
		}
	}
	return false
}

// outer puts the URIs of a content block into the form in which a client may ask for them, and
// leaves out its _meta, where extensions put their hooks.
func (s *Session) outer(server string, block strictjson.Value) any {
	m, ok := block.Members()
	if !ok {
		return block
	}
	if server == "" {
		return block // waldo's own: its addresses are as clients ask for them
	}
	kind, _ := m["type"].Text()
	out := map[string]any{}
	for k, v := range m {
		switch {
		case k == "_meta":
		case k == "uri" && kind == "resource_link":
			uri, _ := v.Text()
			out[k] = s.d.lists().Outer(server, uri)
		case k == "resource" && kind == "resource":
			inside, _ := v.Members()
			resource := map[string]any{}
			for name, x := range inside {
				if name != "_meta" {
					resource[name] = x
				}
			}
			uri, _ := inside["uri"].Text()
			resource["uri"] = s.d.lists().Outer(server, uri)
			out[k] = resource
		default:
			out[k] = v
		}
	}
	return out
}

// refusal turns an unsuccessful result into an error, for methods whose results cannot carry one.
func refusal(r call.Result) error {
	if f := r.Fault; f != nil {
		return &jsonrpc.Error{Code: f.Code, Message: f.Message, Data: f.Data}
	}
	if r.Status == facts.OK {
		return nil
	}
	text := Epilogue(r)
	for _, c := range r.Content {
		if c.Type == "text" && c.Text != "" {
			text = c.Text + "\n" + text
		}
	}
	e := jsonrpc.Errorf(jsonrpc.CodeRefused, "%s", text)
	if data, err := call.ArgsOf(r.Meta()); err == nil {
		e.Data = data.Value()
	}
	return e
}
