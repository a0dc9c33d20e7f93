package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

// heavy returns n tools of a server, each with a schema of 900 KiB.
func heavy(t *testing.T, server string, n int) (out []call.Tool) {
	schema := `{"type":"object","description":"` + strings.Repeat("x", 900<<10) + `"}`
	for i := range n {
		out = append(out, tool(t, fmt.Sprintf("%s.t%d", server, i), "", schema))
	}
	return out
}

func weightOf(tools []call.Tool) (weight int) {
	for _, t := range tools {
		weight += len(t.Description) + strictjson.Weight(t.Input.Raw()) + strictjson.Weight(t.Output.Raw())
	}
	return weight
}

// TestLargeDefinitions lists definitions that together would cost more memory than is taken. Each tool of the server is
// left out with the reason. The tools of servers that fit are listed.
func TestLargeDefinitions(t *testing.T) {
	if testing.Short() {
		t.Skip("a listing has a time limit, and definitions of this size exceed it under the race detector")
	}
	one := weightOf(heavy(t, "a", 1))
	list := func(each map[string]int) (shown map[string]int, problems []Problem) {
		sources := map[string]Source{}
		for server, n := range each {
			sources[server] = fixed(heavy(t, server, n)...)
		}
		c := New(Options{Contracts: rules{}, Texts: text{}, Sources: sources})
		defer c.Close()
		shown = map[string]int{}
		for _, e := range c.List(t.Context(), Viewer{}) {
			shown[e.Server]++
		}
		return shown, c.Problems()
	}
	fits := maxOf / one
	if shown, problems := list(map[string]int{"a": fits}); shown["a"] != fits || len(problems) != 0 {
		t.Fatalf("control: %v %v", shown, problems)
	}
	shown, problems := list(map[string]int{"a": fits + 1, "b": 2})
	if shown["a"] != 0 || shown["b"] != 2 || len(problems) != fits+1 {
		t.Fatalf("one server: %v %v", shown, problems)
	}
	if p := problems[0]; p.Server != "a" || p.Code != "tool.size" ||
		p.Text != "the server's definitions of tools take about 16 MiB of memory: at most 16 are taken" {
		t.Errorf("%+v", p)
	}
	each := map[string]int{}
	for i := range 6 {
		each[fmt.Sprintf("s%d", i)] = fits
	}
	room := maxAll / (fits * one)
	shown, problems = list(each)
	// and waldo's own
	if len(shown) != room+1 || shown["s0"] != fits || shown[fmt.Sprintf("s%d", room)] != 0 ||
		len(problems) != (6-room)*fits {
		t.Fatalf("all servers: %v, %d problems", shown, len(problems))
	}
	if p := problems[0]; p.Code != "tool.size" ||
		!strings.HasPrefix(p.Text, "with this server's, all servers' definitions of tools take about ") {
		t.Errorf("%+v", p)
	}
}

// TestRealDefinitionsFit weighs the definitions of real servers.
func TestRealDefinitionsFit(t *testing.T) {
	all, files := 0, corpus.Definitions(t)
	for f, b := range files {
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(b, &list); err != nil || len(list.Tools) == 0 {
			t.Fatal(f, err)
		}
		weight := 0
		for _, raw := range list.Tools {
			weight += strictjson.Weight(raw)
		}
		if all += weight; weight > maxOf/4 {
			t.Errorf("%s weighs %d KiB", f, weight>>10)
		}
	}
	t.Logf("%d lists weigh %d KiB", len(files), all>>10)
}
