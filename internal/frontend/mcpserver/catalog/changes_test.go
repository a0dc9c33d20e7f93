package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/call"
)

// many are servers with tools of usual size. Each answers after all that stand before it in the row, so that a list
// is made again and again.
func many(t testing.TB, servers, tools int) map[string]Source {
	out := map[string]Source{}
	before := make(chan struct{})
	close(before)
	for i := range servers {
		var list []call.Tool
		for k := range tools {
			list = append(list, tool(t, fmt.Sprintf("s%d.create_row_%d", i, k),
				"Creates a row in a table and returns its id. "+strings.Repeat("The table must be there. ", 8),
				`{"type":"object","properties":{"table":{"type":"string","description":"The name of the table."},`+
					`"values":{"type":"array","items":{"type":"object","properties":{"column":{"type":"string"},`+
					`"value":{"anyOf":[{"type":"string"},{"type":"number"}]}},"required":["column"]}}},"required":["table"]}`))
		}
		wait, ready := before, make(chan struct{})
		out[fmt.Sprintf("s%d", i)] = func(ctx context.Context) ([]call.Tool, error) {
			<-wait
			defer time.AfterFunc(2*time.Millisecond, sync.OnceFunc(func() { close(ready) }))
			return list, nil
		}
		before = ready
	}
	return out
}

// A definition is read once, however many servers answer after its own.
func TestEachDefinitionIsMadeOnce(t *testing.T) {
	var cleaned atomic.Int64
	c := New(Options{Contracts: rules{}, Texts: text{Cleaner: func(s string) string { cleaned.Add(1); return s }},
		Sources: many(t, 20, 10)})
	defer c.Close()
	if n := len(c.List(context.Background(), Viewer{})); n != 201 {
		t.Fatalf("%d tools", n)
	}
	if n := cleaned.Load(); n > 4*220 { // a description and that of a parameter each, and waldo's own
		t.Errorf("%d texts were cleaned", n)
	}
	was := cleaned.Load()
	c.Rebuild()
	if n := cleaned.Load() - was; n != 0 {
		t.Errorf("a list of the same tools cleaned %d texts", n)
	}
}

// Text is cleaned again once Clean may give other text: a secret may be known since.
func TestANewSecretIsHiddenInAKnownTool(t *testing.T) {
	var epoch, hide atomic.Bool
	c := New(Options{
		Contracts: rules{},
		Texts: text{Era: func() any { return epoch.Load() }, Cleaner: func(s string) string {
			if hide.Load() {
				return strings.ReplaceAll(s, "hunter2", "[SECRET]")
			}
			return s
		}},
		Sources: map[string]Source{"s": fixed(tool(t, "s.a", "the key is hunter2", `{}`))},
	})
	defer c.Close()
	shown := func() string {
		found := c.Search(context.Background(), Viewer{}, "key", 1)
		return c.List(context.Background(), Viewer{})[0].Description + ", found: " + found[0].Description
	}
	if got := shown(); got != "the key is hunter2, found: the key is hunter2" {
		t.Fatalf("control: %q", got)
	}
	hide.Store(true)
	epoch.Store(true)
	c.Rebuild()
	if got := shown(); got != "the key is [SECRET], found: the key is [SECRET]" {
		t.Errorf("afterwards: %q", got)
	}
}

// A server that says that its list has changed, and lists the same, costs no new list, and no host hears of it.
func TestOnlyAListThatDiffersIsTold(t *testing.T) {
	list, held := atomic.Pointer[[]call.Tool]{}, atomic.Pointer[[]Problem]{}
	var asked, made, told atomic.Int64
	put := func(tools ...call.Tool) { list.Store(&tools) }
	put(tool(t, "s.a", "", `{}`))
	held.Store(&[]Problem{})
	c := New(Options{
		Contracts: rules{Named: func(server, tool string) []call.Capability {
			made.Add(1)
			return []call.Capability{call.Capability(server + "." + tool)}
		}},
		Texts: text{},
		Pins:  pins{Holds: func(string) []Problem { return *held.Load() }},
		Sources: map[string]Source{"s": func(context.Context) ([]call.Tool, error) {
			asked.Add(1)
			return *list.Load(), nil
		}},
	})
	defer c.Close()
	c.Watch(func() { told.Add(1) })
	c.List(context.Background(), Viewer{})
	again := func() (lists, hosts int64) {
		n, m, h := asked.Load(), made.Load(), told.Load()
		c.tools.by["s"].mu.Lock()
		c.tools.by["s"].begun = time.Now().Add(-time.Minute)
		c.tools.by["s"].mu.Unlock()
		c.Invalidate("s")
		c.List(context.Background(), Viewer{})
		if asked.Load() == n {
			t.Fatal("the server was not asked")
		}
		return made.Load() - m, told.Load() - h
	}
	if lists, hosts := again(); lists != 0 || hosts != 0 {
		t.Errorf("the same list was made %d times and told %d times", lists, hosts)
	}
	put(tool(t, "s.a", "", `{"type":"object"}`))
	if lists, hosts := again(); lists == 0 || hosts != 1 {
		t.Errorf("control: another list was made %d times and told %d times", lists, hosts)
	}
	held.Store(&[]Problem{{Server: "s", Capability: "s.new", Code: "lock.new"}})
	if lists, hosts := again(); lists == 0 || hosts != 0 || len(c.Problems()) != 1 {
		t.Errorf("a tool in quarantine: the list was made %d times and told %d times, problems %v", lists,
			hosts, c.Problems())
	}
}

// Tools that were accepted are listed before their server has answered; its own list takes their place.
func TestAcceptedToolsAreListedAtOnce(t *testing.T) {
	ready := make(chan error)
	kept := map[string][]call.Tool{"s": {tool(t, "s.a", "", `{}`), tool(t, "s.gone", "", `{}`),
		tool(t, "other.b", "", `{}`)}}
	c := New(Options{
		Contracts: rules{},
		Texts:     text{},
		Pins:      pins{Keeps: func(server string) []call.Tool { return kept[server] }},
		Retry:     time.Nanosecond,
		Sources: map[string]Source{"s": func(ctx context.Context) ([]call.Tool, error) {
			if err := <-ready; err != nil {
				return nil, err
			}
			return fixed(tool(t, "s.a", "", `{}`))(ctx)
		}},
	})
	defer c.Close()
	begun := time.Now()
	if got := names(c.List(context.Background(), Viewer{})); got != "s__a s__gone search_tools" ||
		time.Since(begun) > 5*time.Second {
		t.Errorf("at once: %s after %s", got, time.Since(begun))
	}
	ready <- errors.New("it does not start")
	for len(c.Problems()) < 2 { // one is the name that is another server's
		time.Sleep(time.Millisecond)
	}
	if got := names(c.List(context.Background(), Viewer{})); got != "s__a s__gone search_tools" {
		t.Errorf("of a server that does not start: %s", got)
	}
	told := make(chan struct{}, 9)
	c.Watch(func() { told <- struct{}{} })
	ready <- nil
	<-told
	if got := names(c.List(context.Background(), Viewer{})); got != "s__a search_tools" {
		t.Errorf("once it has answered: %s", got)
	}
	if _, ok := c.Lookup(context.Background(), "s.gone"); ok {
		t.Error("a tool that the server no longer lists is found")
	}
}
