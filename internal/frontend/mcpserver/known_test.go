//lint:file-ignore SA1019 sampling, roots and logging are deprecated, and clients use them for another year

package mcpserver

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/catalogtest"
)

// A kind of content that the client's revision has not is a text.
func TestOlderClients(t *testing.T) {
	audio, link := map[string]any{"type": "audio"}, map[string]any{"type": "resource_link", "uri": "waldo://s/x"}
	for _, row := range []struct {
		revision, kind string
		block, want    any
	}{
		{"2024-11-05", "audio", audio, text("[audio left out]")},
		{"2025-03-26", "audio", audio, audio},
		{"", "audio", audio, audio},
		{"2024-11-05", "resource_link", link, text("waldo://s/x")},
		{"2025-03-26", "resource_link", link, text("waldo://s/x")},
		{"2025-06-18", "resource_link", link, link},
		{"", "resource_link", link, link},
	} {
		if got := known(row.revision, row.kind, row.block); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s %s: %v", row.revision, row.kind, got)
		}
	}
}

// A call of a tool whose server has listed nothing says that the server is not available; one of a tool that a server
// does not have, and one by an agent that may not use it, do not.
func TestAServerThatCannotBeListedIsUnavailable(t *testing.T) {
	d := newDesk(t)
	o := options(t, d)
	var refused []string
	pipeline(&o).OnRefuse = func(_ context.Context, c call.Call, why call.Reason) (call.Result, error) {
		refused = append(refused, string(c.Capability)+" "+why.Code)
		return call.Result{Status: facts.Denied, Facts: facts.New(), Why: []call.Reason{why}}, nil
	}
	var down atomic.Bool
	down.Store(true)
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{
			Allowed: func(cap call.Capability, _ catalog.Viewer) bool { return cap != "s.locked" },
			Under: func(cap call.Capability) contract.Contract {
				return contract.Contract{Server: map[call.Capability]string{"notes.say": "s"}[cap]}
			},
		},
		Retry: time.Nanosecond,
		Sources: map[string]catalog.Source{"s": func(context.Context) ([]call.Tool, error) {
			if down.Load() {
				return nil, errors.New("cannot start /srv/key=hunter2")
			}
			return nil, nil
		}, "other": func(context.Context) ([]call.Tool, error) { return nil, nil }},
	})
	defer o.Catalogue.Close()
	s := client(t, o, "2025-11-25", nil)
	defer s.Close()
	ask := func(tool string) string {
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
		if err != nil {
			return err.Error()
		}
		return say(r)
	}
	for tool, want := range map[string]string{
		"s__a": "is not available now", "notes__say": "is not available now", "other__a": "unknown tool",
		"s__locked": "unknown tool",
	} {
		if got := ask(tool); !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %s", tool, got)
		}
	}
	slices.Sort(refused)
	if got := strings.Join(refused, ", "); got != "notes.say server.unavailable, s.a server.unavailable" ||
		d.count() != 0 {
		t.Errorf("on record: %s, and %d calls", got, d.count())
	}
	down.Store(false)
	for got := ask("s__a"); !strings.Contains(got, "unknown tool"); got = ask("s__a") { // it is listed again
		time.Sleep(10 * time.Millisecond)
	}
}

// A host that wants log messages hears of tools that wait to be accepted, if its agent may use them.
func TestHostsHearOfNewTools(t *testing.T) {
	o := options(t, newDesk(t))
	pipeline(&o).OnScrub = func(_ call.Call, v strictjson.Value, _ bool) strictjson.Value { return v }
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{Allowed: func(cap call.Capability, _ catalog.Viewer) bool { return cap != "s.locked" }},
		Pins: catalogtest.Pins[catalog.Problem]{Holds: func(string) []catalog.Problem {
			return []catalog.Problem{
				{Server: "s", Capability: "s.late", Code: lockNew}, {Server: "s", Capability: "s.locked", Code: lockNew},
			}
		}},
		Sources: map[string]catalog.Source{"s": func(context.Context) ([]call.Tool, error) { return nil, nil }},
	})
	defer o.Catalogue.Close()
	d := New(o)
	heard := make(chan string, 9)
	s := connect(t, d, "2025-11-25",
		&mcp.ClientOptions{LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			heard <- r.Params.Data.(string)
		}})
	defer s.Close()
	if _, err := s.ListTools(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.SetLoggingLevel(context.Background(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
		t.Fatal(err)
	}
	d.NewTools("s.locked", 1)
	d.NewTools("s.late", 2)
	if got := <-heard; !strings.HasPrefix(got, "s.late is one of 2 new definitions") {
		t.Errorf("the host heard %q", got)
	}
	if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "s__late"}); err == nil ||
		!strings.Contains(err.Error(), "until the operator accepts it") {
		t.Errorf("a call of it: %v", err)
	}
}
