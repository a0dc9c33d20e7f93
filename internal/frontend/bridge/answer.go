package bridge

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/frontend/runcode"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/jsonrpc"
)

const protocol = "2025-11-25"

// How many tools one answer lists.
const (
	pageSize    = 500
	searchLimit = 20
	searchMax   = 100
)

// errInside is the only text about waldo's own failures that a sandbox sees.
var errInside = jsonrpc.Errorf(jsonrpc.CodeInternal, "waldo failed; its operator can see why")

// answer does what a request asks. A panic below ends the request, not waldo.
func (w *bridgeConn) answer(ctx context.Context, m jsonrpc.Message) (result any, err error) {
	defer func() {
		if recover() != nil {
			w.judge(facts.Unknown)
			result, err = nil, errInside
		}
	}()
	switch m.Method {
	case "initialize":
		return map[string]any{
			"protocolVersion": protocol,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "waldo", "version": w.b.version},
		}, nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return w.list(m)
	case "waldo/search":
		return w.search(m)
	case "tools/call":
		result, err = w.call(ctx, m)
		if before, ok := ctx.Value(beforeKey{}).(context.Context); ok {
			select {
			case <-before.Done(): // it is answered
			case <-ctx.Done():
			}
		}
		return result, err
	case "waldo/result":
		return w.result(ctx, m)
	case "waldo/suspend":
		return w.suspend(m)
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method here")
}

type beforeKey struct{}

// arrive gives a request that can be held, or waits for held calls, its place among them. Calls of a program whose
// writes are held are answered in their order, so that its next calls have one order, too.
func (w *bridgeConn) arrive(ctx context.Context, method string) context.Context {
	if method != "tools/call" && method != "waldo/result" {
		return ctx
	}
	placed := w.b.pipeline.Arrive(ctx)
	if placed == ctx || method == "waldo/result" {
		return placed
	}
	if w.last != nil {
		placed = context.WithValue(placed, beforeKey{}, w.last)
	}
	w.last = ctx
	return placed
}

// params decodes the parameters into out. It reports false where they do not fit.
func params(m jsonrpc.Message, out any) bool {
	return m.Params.IsZero() || m.Params.Decode(out) == nil
}

// list answers tools/list, pageSize tools at a time; the cursor is the last name of a page.
func (w *bridgeConn) list(m jsonrpc.Message) (any, error) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	if !params(m, &p) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "tools/list takes a cursor or nothing")
	}
	page := []any{}
	result := map[string]any{}
	for _, t := range w.b.pipeline.Tools(w.run) {
		if string(t.Capability) <= p.Cursor {
			continue
		}
		if len(page) == pageSize {
			result["nextCursor"] = p.Cursor
			break
		}
		p.Cursor = string(t.Capability)
		d := describe(t, "full")
		d["name"], d["_meta"] = t.Capability.Wire(), map[string]any{"waldo/capability": t.Capability}
		page = append(page, d)
	}
	result["tools"] = page
	return result, nil
}

// search answers waldo/search: {query, detail: name|basic|full, limit}.
func (w *bridgeConn) search(m jsonrpc.Message) (any, error) {
	p := struct {
		Query  string `json:"query"`
		Detail string `json:"detail"`
		Limit  int    `json:"limit"`
	}{Detail: "basic", Limit: searchLimit}
	if !params(m, &p) || p.Limit < 1 || p.Limit > searchMax {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "search takes query, detail and a limit of at most 100")
	}
	if p.Detail != "name" && p.Detail != "basic" && p.Detail != "full" {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "detail is name, basic or full")
	}
	found := []any{}
	for _, t := range w.b.pipeline.Search(w.run, p.Query, p.Limit) {
		found = append(found, describe(t, p.Detail))
	}
	return map[string]any{"tools": found}, nil
}

// describe shows a tool at a level of detail, under its dotted name.
func describe(t call.Tool, detail string) map[string]any {
	m := map[string]any{"name": t.Capability, "server": t.Server}
	if detail == "name" {
		return m
	}
	m["title"], m["description"] = t.Title, t.Description
	if detail == "basic" {
		return m
	}
	if !t.Input.IsZero() {
		m["inputSchema"] = t.Input
	}
	if !t.Output.IsZero() {
		m["outputSchema"] = t.Output
	}
	return m
}

// call answers tools/call: it builds the call.Call and sends it through the pipeline.
func (w *bridgeConn) call(ctx context.Context, m jsonrpc.Message) (any, error) {
	var p struct {
		Name       string         `json:"name"`
		Arguments  jsontext.Value `json:"arguments"`
		ApprovalID string         `json:"waldo/approval_id"`
		Key        string         `json:"waldo/idempotency_key"`
		Delegation string         `json:"waldo/delegation"`
	}
	if !params(m, &p) || p.Name == "" {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "tools/call takes a name and arguments")
	}
	if !call.Capability(p.Name).Named() {
		return nil,
			jsonrpc.Errorf(jsonrpc.CodeParams, "tools/call takes the name of a tool: 1 to 200 letters, digits, _, - and .")
	}
	args, err := call.ParseArgs(p.Arguments)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "arguments must be one JSON object of at most 4 MiB")
	}
	if p.Name == runcode.Name {
		members, _ := args.Value().Members()
		of, inner, ok := runcode.Call(members)
		if !ok {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, runcode.Misuse)
		}
		if args, err = call.ArgsOf(inner); err != nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, runcode.Misuse)
		}
		p.Name = string(of)
	}
	c := call.Call{
		ID: id.New(id.Call), Capability: call.Capability(p.Name), Args: args,
		Session: w.run.Session, Principal: w.run.Principal,
		Channel: "bridge", Parent: w.run.ID, Depth: w.run.Depth + 1,
		ApprovalID: p.ApprovalID, Key: p.Key, Trace: w.run.Trace, Delegation: p.Delegation, Chain: w.run.Chain,
	}
	t, found := w.resolve(p.Name)
	if found {
		c.Of(t)
	} else { // an unknown name goes through as it is, so that its refusal has a record
		t = call.Tool{Capability: c.Capability}
	}
	if why := w.b.pipeline.Check(c, t); why != nil {
		r, err := w.b.pipeline.Refuse(ctx, c, *why)
		if err != nil {
			return nil, broken(r.DecisionID, c.ID)
		}
		r.Status = facts.Failed // a mistake of the code, which no operator has to allow
		r.Content = []call.Content{call.Text(why.Text)}
		return show(r), nil
	}
	over := w.begin()
	defer over()
	r, err := w.b.pipeline.Call(ctx, c)
	w.judge(r.Facts.SideEffect)
	if err != nil {
		return nil, broken(r.DecisionID, c.ID)
	}
	if r.Status == facts.Waiting && r.ApprovalID != "" && w.place != nil && !w.place.Held {
		w.hold(ctx, m, r)
	}
	return show(r), nil
}

// result answers waldo/result: {number} of a held call. A program that goes on quotes the approval that it waited for.
func (w *bridgeConn) result(ctx context.Context, m jsonrpc.Message) (any, error) {
	var p struct {
		Number     int    `json:"number"`
		ApprovalID string `json:"waldo/approval_id"`
	}
	if !params(m, &p) || p.Number < 1 || p.ApprovalID != "" && !slices.Contains(w.waits, p.ApprovalID) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "waldo/result takes the number of a held call")
	}
	over := w.begin()
	defer over()
	if w.place != nil {
		ctx = call.WithSuspension(ctx)
	}
	r, err := w.b.pipeline.Result(ctx, w.run, p.Number, p.ApprovalID)
	if err != nil {
		return nil, broken(r.DecisionID, r.CallID)
	}
	if r.Status == facts.Waiting && r.ApprovalID != "" && w.place != nil {
		w.hold(ctx, m, r)
	}
	return show(r), nil
}

// broken is the error that waldo itself failed with, under the ids by which its operator finds more.
func broken(decision, id string) error {
	e := *errInside
	if ids, err := call.ArgsOf(map[string]any{"waldo/decision_id": decision, "waldo/call_id": id}); err == nil {
		e.Data = ids.Value()
	}
	return &e
}

var notIdentifier = regexp.MustCompile(`[^A-Za-z0-9_.]`)

// identifier spells a dotted name as a code identifier: every character that an identifier cannot hold becomes "_".
func identifier(name string) string { return notIdentifier.ReplaceAllString(name, "_") }

// spell maps the name that code must write to the run's tools. A character that an identifier cannot hold becomes
// "_"; import can be written import_.
func (w *bridgeConn) spell() map[string][]call.Tool {
	m := map[string][]call.Tool{}
	for _, t := range w.b.pipeline.Tools(w.run) {
		s := identifier(string(t.Capability))
		m[s] = append(m[s], t)
	}
	return m
}

// resolve finds the tool that code means by a name: the one of that name, or else the only one that
// is spelled so.
func (w *bridgeConn) resolve(name string) (call.Tool, bool) {
	if t, ok := w.b.pipeline.Find(w.run, name); ok {
		return t, true
	}
	for _, s := range []string{name, strings.TrimSuffix(name, "_")} {
		if found := w.spelled()[s]; len(found) == 1 {
			return found[0], true
		}
	}
	return call.Tool{}, false
}

// show makes the result of a call an MCP one.
func show(r call.Result) map[string]any {
	content := []any{}
	for _, c := range r.Content {
		if c.Type == "text" {
			content = append(content, map[string]any{"type": "text", "text": c.Text})
		} else if !c.Raw.IsZero() {
			content = append(content, c.Raw)
		}
	}
	why := reasons(r.Cause())
	if len(content) == 0 && len(why) > 0 {
		content = append(content, map[string]any{
			"type": "text", "text": string(r.Status) + ": " + why[0].Code + ": " + why[0].Text,
		})
	}
	m := map[string]any{
		"content": content,
		"isError": r.IsError,
		"_meta": map[string]any{
			"waldo/call_id": r.CallID, "waldo/decision_id": r.DecisionID, "waldo/status": r.Status,
			"waldo/trust": r.Trust, "waldo/side_effect": r.Facts.SideEffect, "waldo/reasons": why,
			"waldo/approval_id": r.ApprovalID, "waldo/facts": facts.Brief(r.Facts),
		},
	}
	if r.Preview != nil {
		m["_meta"].(map[string]any)["waldo/confirm"] = r.Preview.Token
	}
	call.MetaOf(r, m["_meta"].(map[string]any))
	if !r.Structured.IsZero() {
		m["structuredContent"] = r.Structured
	}
	return m
}

// reasons omits the contract's position: a sandbox must not see a path of the host.
func reasons(why []call.Reason) []call.Reason {
	out := make([]call.Reason, len(why))
	for i, r := range why {
		out[i] = call.Reason{Code: r.Code, Text: r.Text}
	}
	return out
}
