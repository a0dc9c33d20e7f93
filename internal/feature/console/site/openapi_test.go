package site

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write openapi.json")

// operation says what an API path takes and gives. TestOpenAPI makes openapi.json of these and of the route table.
type operation struct {
	summary string
	query   []string
	in, out any
	stream  bool
}

var paged = []string{"limit", "cursor"}

var operations = map[string]operation{
	"GET /api/v1/openapi.json":   {summary: "This document", out: map[string]any{}},
	"GET /api/v1/me":             {summary: "Who is logged in", out: map[string]string{}},
	"GET /api/v1/approvals":      {summary: "Questions that wait, oldest first", query: paged, out: List[Approval]{}},
	"GET /api/v1/approvals/{id}": {summary: "One question, whole", out: Approval{}},
	"GET /api/v1/approvers":      {summary: "Who can answer", out: List[Approver]{}},
	"GET /api/v1/calls": {summary: "Calls, newest first",
		query: append([]string{"capability", "principal", "effect", "status", "session", "result", "agent", "text", "since",
			"until"}, paged...), out: List[Call]{}},
	"GET /api/v1/answered":       {summary: "Questions that do not wait any more, newest first", query: paged, out: List[Answered]{}},
	"GET /api/v1/agents/{id}":    {summary: "One session", out: Agent{}},
	"GET /api/v1/upstreams/{id}": {summary: "One server with its tools, faults and egress", out: UpstreamLife{}},
	"GET /api/v1/egress": {summary: "Attempts to reach another machine, the refused first; result is refused, not reached or reached",
		query: []string{"text", "result", "server"}, out: List[Egress]{}},
	"GET /api/v1/calls/{id}": {summary: "One call's whole life", out: CallLife{}},
	"GET /api/v1/agents":     {summary: "Sessions of agents, the last used first", query: paged, out: List[Agent]{}},
	"GET /api/v1/sandboxes":  {summary: "Named sandboxes", out: List[Sandbox]{}},
	"GET /api/v1/upstreams":  {summary: "Servers, with their health", out: List[Upstream]{}},
	"GET /api/v1/webhooks":   {summary: "Senders and receivers of webhooks, with their counts", out: List[Webhook]{}},
	"GET /api/v1/deliveries": {summary: "Webhooks that are not done, oldest first; state is waiting or dead",
		query: append([]string{"state"}, paged...), out: List[Delivery]{}},
	"POST /api/v1/deliveries/{id}/retry": {summary: "Hand a webhook over again, with all its tries",
		out: map[string]string{}},
	"POST /api/v1/deliveries/{id}/drop": {summary: "Remove a webhook that waits", out: map[string]string{}},
	"GET /api/v1/contracts":             {summary: "Contracts in force", out: List[Contract]{}},
	"GET /api/v1/pins": {summary: "Definitions that wait to be accepted; starts each server",
		out: List[Pin]{}},
	"GET /api/v1/unsettled": {summary: "Calls with an unknown outcome, oldest first",
		out: List[Unsettled]{}},
	"GET /api/v1/audit": {summary: "Records of the log, newest first",
		query: append([]string{"kind", "without", "text", "id"}, paged...), out: List[Record]{}},
	"GET /api/v1/usage": {summary: "Counts of the last hours (1 to 744, all by default) by capability, or by=agent",
		query: []string{"hours", "by"}, out: List[Usage]{}},
	"GET /api/v1/usage/hours": {summary: "Counts over time, the oldest first: the last hours (1 to 744) in steps",
		query: []string{"hours", "step"}, out: List[Hour]{}},
	"GET /api/v1/events": {summary: "Server-sent events; Last-Event-ID resumes",
		query: []string{"after", "kinds"}, stream: true},
	"POST /api/v1/audit/verify":      {summary: "Verify the log", out: map[string]any{}},
	"POST /api/v1/contracts/dry-run": {summary: "Decide a call without making it", in: DryRun{}, out: Decision{}},
	"POST /api/v1/contracts/what-if": {summary: "Compare the decisions on the last day's calls with those of a changed " +
		"waldo.yaml", in: struct {
		Text string `json:"text"`
	}{}, out: WhatIf{}},
	"POST /api/v1/approvals/{id}/draft": {summary: "Prepare an answer: verdict is approve or deny; options are for " +
		"navigator.credentials.get",
		in: struct {
			Answering
			Verdict string `json:"verdict"`
		}{}, out: Ceremony{}},
	"POST /api/v1/approvals/{id}/approve": {summary: "Hand in a drafted yes with its assertion",
		in: signed{}, out: Approval{}},
	"POST /api/v1/approvals/{id}/deny": {summary: "Hand in a drafted no with its assertion",
		in: signed{}, out: Approval{}},
	"POST /api/v1/login": {summary: "Begin a login with an approver's passkey; options are for navigator.credentials.get",
		in: struct {
			Name string `json:"name"`
		}{}, out: Ceremony{}},
	"POST /api/v1/login/{draft}": {summary: "Hand in the assertion of a login; the answer sets the cookie", in: struct {
		Assertion json.RawMessage `json:"assertion"`
	}{}, out: map[string]string{}},
	"POST /api/v1/enrolment": {summary: "Begin to enrol a passkey with the secret of a terminal", in: struct {
		Secret string `json:"secret"`
	}{}, out: Ceremony{}},
	"POST /api/v1/enrolment-root": {summary: "Ask for the first approver's signature under an enrolment", in: struct {
		Secret string `json:"secret"`
	}{}, out: Ceremony{}},
	"POST /api/v1/enrolment-root/{draft}/sign": {summary: "Hand in the first approver's assertion", in: struct {
		Assertion json.RawMessage `json:"assertion"`
	}{}, out: map[string]string{}},
	"POST /api/v1/enrolment/{draft}/register": {summary: "Hand in the new credential", in: struct {
		Credential json.RawMessage `json:"credential"`
	}{}, out: Ceremony{}},
	"POST /api/v1/enrolment/{draft}/finish": {summary: "Hand in the first assertion; the terminal then decides",
		in: struct {
			Assertion json.RawMessage `json:"assertion"`
		}{}, out: map[string]string{}},
	"POST /api/v1/agents/{name}/stop": {summary: "End the sessions of a principal, or one session",
		out: map[string]string{}},
	"POST /api/v1/agents/{name}/release":   {summary: "Let a principal in again", out: map[string]string{}},
	"POST /api/v1/sandboxes/{name}/pause":  {summary: "Freeze a sandbox", out: map[string]string{}},
	"POST /api/v1/sandboxes/{name}/resume": {summary: "Let a sandbox go on", out: map[string]string{}},
	"POST /api/v1/upstreams/{name}/restart": {summary: "End a server of this process; the next call starts it anew",
		out: map[string]string{}},
	"POST /api/v1/sandboxes/{name}/stop": {summary: "End the commands of a sandbox", out: map[string]string{}},
}

// schemaOf returns the JSON Schema of a Go type; named structs go to defs.
func schemaOf(t reflect.Type, defs map[string]any) any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), defs)
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Uint64, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem(), defs)}
	case reflect.Map:
		return map[string]any{"type": "object"}
	case reflect.Struct:
		name := strings.NewReplacer("[", "Of", "]", "", "waldo/internal/feature/console/site.", "").Replace(t.Name())
		if name == "" {
			return object(t, defs)
		}
		if defs[name] == nil {
			defs[name] = true // ends a cycle
			defs[name] = object(t, defs)
		}
		return map[string]any{"$ref": "#/components/schemas/" + name}
	}
	panic("no schema for " + t.String())
}

func object(t reflect.Type, defs map[string]any) map[string]any {
	properties, required := map[string]any{}, []string{}
	var each func(t reflect.Type)
	each = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case f.Anonymous && name == "":
				each(f.Type)
			default:
				properties[name] = schemaOf(f.Type, defs)
				if !strings.Contains(rest, "omit") {
					required = append(required, name)
				}
			}
		}
	}
	each(t)
	sort.Strings(required)
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func document(t *testing.T) []byte {
	defs := map[string]any{}
	problem := map[string]any{
		"description": "Refused",
		"content":     map[string]any{"application/problem+json": map[string]any{"schema": schemaOf(reflect.TypeFor[Problem](), defs)}},
	}
	paths, seen := map[string]map[string]any{}, map[string]bool{}
	for _, r := range New(Options{}).routes() {
		if !strings.HasPrefix(r.Path, "/api/") {
			continue
		}
		o, ok := operations[r.Method+" "+r.Path]
		if !ok {
			t.Fatalf("%s %s is not in the table of operations", r.Method, r.Path)
		}
		seen[r.Method+" "+r.Path] = true
		op := map[string]any{"summary": o.summary, "x-role": r.Role.String()}
		if r.Open {
			op["security"] = []any{}
		}
		params := []any{}
		for _, part := range strings.Split(r.Path, "/") {
			if strings.HasPrefix(part, "{") {
				params = append(params, map[string]any{
					"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": map[string]any{"type": "string"},
				})
			}
		}
		for _, q := range o.query {
			schema := map[string]any{"type": "string"}
			if q == "limit" {
				schema = map[string]any{"type": "integer", "minimum": 1, "maximum": maxLimit, "default": defaultLimit}
			}
			if q == "hours" || q == "step" {
				schema = map[string]any{"type": "integer", "minimum": 1, "maximum": maxHours,
					"default": map[string]int{"/api/v1/usage/hours hours": 24, "/api/v1/usage/hours step": 1, "/api/v1/usage hours": maxHours}[r.Path+" "+q]}
			}
			params = append(params, map[string]any{"name": q, "in": "query", "schema": schema})
		}
		if len(params) > 0 {
			op["parameters"] = params
		}
		if o.in != nil {
			op["requestBody"] = map[string]any{
				"required": true,
				"content":  map[string]any{"application/json": map[string]any{"schema": schemaOf(reflect.TypeOf(o.in), defs)}},
			}
		}
		content := map[string]any{"text/event-stream": map[string]any{}}
		if !o.stream {
			content = map[string]any{"application/json": map[string]any{"schema": schemaOf(reflect.TypeOf(o.out), defs)}}
		}
		op["responses"] = map[string]any{"200": map[string]any{"description": "Done", "content": content}, "default": problem}
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = op
	}
	for name := range operations {
		if !seen[name] {
			t.Errorf("%s has no handler", name)
		}
	}
	b, err := json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "waldo console", "version": "1",
			"description": "The API that the console itself uses. docs/console.md describes logins, roles and signatures.",
		},
		"paths": paths,
		"components": map[string]any{"schemas": defs, "securitySchemes": map[string]any{
			"token": map[string]any{"type": "http", "scheme": "bearer"},
			"cookie": map[string]any{
				"type": "apiKey", "in": "cookie", "name": cookieName,
				"description": "A browser's login. A change needs the header X-CSRF-Token as well.",
			}}},
		"security": []any{map[string]any{"token": []any{}}, map[string]any{"cookie": []any{}}},
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// TestOpenAPI: openapi.json describes exactly the handlers and the types that they read and write.
func TestOpenAPI(t *testing.T) {
	want := document(t)
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("openapi.json is not what the handlers are: go test ./internal/feature/console/site -run TestOpenAPI -update")
	}
}
