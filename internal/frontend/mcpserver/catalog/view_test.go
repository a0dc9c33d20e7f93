package catalog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"waldo/internal/model/call"
)

// A viewer does not see a tool that it may not use, in any list or search; another viewer sees it.
func TestViews(t *testing.T) {
	object := `{"type":"object"}`
	offers := offer(t, `{"name":"p"}`, `{"uri":"x:y"}`, `{"uriTemplate":"x:{y}"}`)
	locked := map[call.Capability]bool{"a.drop": true, "b.prompts/get": true, "b.resources/read": true, SearchTools: true}
	c := New(Options{
		Contracts: rules{Allowed: func(cap call.Capability, v Viewer) bool {
			return v.Principal == "os:0" || v.Channel == "cli" || !locked[cap]
		}},
		Texts: text{},
		Sources: map[string]Source{"a": fixed(tool(t, "a.drop", "drops a table", object),
			tool(t, "a.show", "shows a table", object))},
		Offers: map[string]OfferSource{"a": offers, "b": offers},
	})
	defer c.Close()
	ctx := context.Background()
	for _, row := range []struct {
		v    Viewer
		want string
	}{
		{
			Viewer{"os:0", "mcp"}, "a__drop a__show search_tools|a__drop a__show|a__p b__p|waldo://a/x:y " +
				"waldo://b/x:y|waldo://a/x:{y} waldo://b/x:{y}|true",
		},
		{Viewer{"os:1", "mcp"}, "a__show search_tools|a__show|a__p|waldo://a/x:y|waldo://a/x:{y}|false"},
		{
			Viewer{"os:1", "cli"}, "a__drop a__show search_tools|a__drop a__show|a__p b__p|waldo://a/x:y " +
				"waldo://b/x:y|waldo://a/x:{y} waldo://b/x:{y}|true",
		},
	} {
		e, ok := c.Lookup(ctx, "a__drop")
		if !ok {
			t.Fatal("the pipeline does not find it")
		}
		for range 2 { // made, and kept
			got := fmt.Sprintf("%s|%s|%s|%s|%s|%v", names(c.List(ctx, row.v)), names(c.Search(ctx, row.v, "table", 0)),
				wires(c.Prompts(ctx, row.v)), wires(c.Resources(ctx, row.v)), wires(c.Templates(ctx, row.v)), c.Shows(row.v, e))
			if got != row.want {
				t.Errorf("%v sees\n%s", row.v, got)
			}
		}
	}
	for name, want := range map[call.Principal]string{"os:0": "a__drop", "os:1": ""} {
		if got := names(c.Search(ctx, Viewer{name, "mcp"}, "a__drop", 0)); got != want {
			t.Errorf("%s finds %q by its name", name, got)
		}
	}
	if _, ok := c.Prompt(ctx, "b__p"); !ok {
		t.Error("the pipeline does not find the prompt")
	}
	delete(locked, "a.drop")
	c.Rebuild() // as when the contracts are others now
	if got := names(c.List(ctx, Viewer{"os:1", "mcp"})); got != "a__drop a__show search_tools" {
		t.Errorf("after the contracts changed: %s", got)
	}
}

// The cache holds at most maxSights views for any number of viewers.
func TestViewsAreBounded(t *testing.T) {
	c := New(Options{Contracts: rules{Allowed: func(call.Capability, Viewer) bool { return true }}, Texts: text{}})
	defer c.Close()
	for i := range 3 * maxSights {
		c.List(context.Background(), Viewer{Principal: call.Principal(fmt.Sprint("oidc:", i))})
		if n := len(c.sights); n > maxSights {
			t.Fatalf("%d are kept", n)
		}
	}
}

func BenchmarkView10000(b *testing.B) {
	var tools []call.Tool
	for i := range 10_000 {
		tools = append(tools, tool(b, fmt.Sprintf("s.t%d", i), "does", `{"type":"object"}`))
	}
	c := New(Options{
		Contracts: rules{Allowed: func(cap call.Capability, v Viewer) bool { return cap[len(cap)-1] != '7' }},
		Texts:     text{},
		Sources:   map[string]Source{"s": fixed(tools...)},
	})
	defer c.Close()
	v := Viewer{"os:1", "mcp"}
	begin := time.Now()
	c.List(context.Background(), v)
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "first-ms")
	b.ReportAllocs()
	for b.Loop() {
		if len(c.List(context.Background(), v)) != 9001 {
			b.Fatal("another list")
		}
	}
}
