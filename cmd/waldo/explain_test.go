package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"testing"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/testing/corpus"
)

// listing is a server at a url that lists tools as they are given and answers nothing else.
func listing(t *testing.T, tools json.RawMessage) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		answers := map[string]string{
			"initialize": `"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},` +
				`"capabilities":{"tools":{}}}`,
			"tools/list": `"result":{"tools":` + string(tools) + `}`,
		}
		answer, ok := answers[q.Method]
		switch {
		case q.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case !ok:
			answer = `"error":{"code":-32601,"message":"no such method"}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// explainTools are definitions of our own, for a checkout without the corpus beside it.
const explainTools = `[{"name":"a","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},
 {"name":"b","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}},
 {"name":"c","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":false}},
 {"name":"d","inputSchema":{"type":"object"},"annotations":{"destructiveHint":"yes"}},
 {"name":"e","inputSchema":{"type":"object"}}]`

// A dry run decides as the pipeline does, for every tool of the corpus, under every kind of contract.
func TestExplainDecidesAsTheCall(t *testing.T) {
	all := map[string]json.RawMessage{"own": json.RawMessage(explainTools)}
	for f, b := range corpus.Definitions(t) {
		var d struct{ Tools json.RawMessage }
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatal(f, err)
		}
		all[path.Base(f)] = d.Tools
	}
	decided, tightened := 0, 0
	for name, tools := range all {
		url := listing(t, tools)
		for _, entry := range []string{"{mode: read, approval: none}", "{mode: write, approval: none}",
			"{mode: high_risk, approval: none}",
			"{mode: write, approval: always}", "deny",
			`{mode: write, approval: {when: "has(args.x)"}, rules: [{when: "capability.contains('a')", danger: 3}]}`} {
			more := explained(t, name, url, entry)
			decided, tightened = decided+more[0], tightened+more[1]
		}
	}
	t.Logf("%d decisions, %d of them by an annotation", decided, tightened)
	if tightened < 2 || decided < corpus.Least(t, 30, 3000) {
		t.Error("too few decisions for this to show anything")
	}
}

// explained compares the two ways for every tool of one server under one contract.
func explained(t *testing.T, name, url, entry string) (n [2]int) {
	dir := t.TempDir()
	file := filepath.Join(dir, "waldo.yaml")
	text := fmt.Sprintf("version: 1\nservers: {s: {url: %q}}\ncapabilities:\n  s.*: %s\n", url, entry)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &cli.Context{Config: file, State: filepath.Join(dir, "state")}
	opened := func() *app.App {
		h, err := g.Open(context.Background(), app.Options{Tells: true})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := opened()
	all, lock, err := h.CompareLock(context.Background(), []string{"s"}, func(string) func() { return func() {} })
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AcceptLock(context.Background(), lock, all, nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = opened()
	defer h.Close()
	args, _ := call.ArgsOf(map[string]any{})
	shown := map[string]*catalog.Entry{}
	for _, e := range h.Catalogue.List(context.Background(), catalog.Viewer{Principal: app.Principal(), Channel: "cli"}) {
		shown[string(e.Capability)] = e
	}
	for tool := range h.Lock.Servers["s"].Tools {
		capability := call.Capability("s." + tool)
		c := call.Call{ID: id.New(id.Call), Capability: capability, Args: args, Channel: "cli", Principal: app.Principal()}
		if e := shown[string(capability)]; e != nil {
			c.ToolDigest, c.Annotations = e.Digest, e.Annotations
		} else if entry != "deny" {
			continue // its name is not callable
		}
		real, dry := h.Broker.Policy.Decide(c), dryRun(h.Policy, capability, args, app.Principal())
		if real.Effect != dry.Effect || real.Danger != dry.Danger || real.Reasons[0] != dry.Reasons[0] {
			t.Errorf("%s %s under %s: explain says %s danger %d %v, the call %s danger %d %v", name, capability, entry,
				dry.Effect, dry.Danger, dry.Reasons[0].Code, real.Effect, real.Danger, real.Reasons[0].Code)
		}
		n[0]++
		if real.Effect == policy.Ask && real.Reasons[0].Code == "annotation.destructive" {
			n[1]++
		}
	}
	return n
}
