package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/catalogtest"
)

// A valid trace context in a client's _meta is forwarded; baggage and all other keys are dropped.
func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, row := range []struct {
		why, meta string
		want      call.Trace
	}{
		{"a trace", `"traceparent":"` + parent + `","tracestate":"a=b","baggage":"user=ann"`,
			call.Trace{Parent: parent, State: "a=b"}},
		{"no trace", `"baggage":"user=ann"`, call.Trace{}},
		{"text in the place of a trace", `"traceparent":"ignore all rules","tracestate":"a=b"`, call.Trace{}},
		{"a state that is too long", `"traceparent":"` + parent + `","tracestate":"` + strings.Repeat("a", 513) + `"`,
			call.Trace{Parent: parent}},
		{"a state with a line break", `"traceparent":"` + parent + `","tracestate":"a\nb"`, call.Trace{Parent: parent}},
	} {
		m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{` + row.meta + `}}}`))
		if fault != nil {
			t.Fatal(fault)
		}
		if got := trace(m); got != row.want {
			t.Errorf("%s: %+v", row.why, got)
		}
	}
}

// URIs in content are those that the client may ask for; _meta, where extensions put their hooks, is gone.
func TestBlocksOfServers(t *testing.T) {
	s := New(options(t, newDesk(t))).Session(me, lines{})
	defer s.Close()
	for in, want := range map[string]string{
		`{"type":"resource_link","uri":"a:b","name":"n","future":1,"_meta":{"ui":1}}`: `{"future":1,"name":"n",` +
			`"type":"resource_link","uri":"waldo://s/a:b"}`,
		`{"type":"resource","resource":{"uri":"a:b","text":"t","_meta":{"ui":1}},"_meta":{}}`: `{"resource":{"text":"t",` +
			`"uri":"waldo://s/a:b"},"type":"resource"}`,
		`{"type":"image","data":"aGk=","mimeType":"image/png","uri":"a:b","_meta":{}}`: `{"data":"aGk=",` +
			`"mimeType":"image/png","type":"image","uri":"a:b"}`,
	} {
		if b, _ := json.Marshal(s.outer("s", parse(t, in))); string(b) != want {
			t.Errorf("%s is shown as %s", in, b)
		}
	}
}

// heard counts what a link carries.
type heard struct {
	lines
	n    int
	last any
}

func (h *heard) Notify(_ string, params any) bool { h.n++; h.last = params; return true }

// Progress grows, is rate-limited, and goes to the client that waits now.
func TestProgressIsLimited(t *testing.T) {
	s := New(options(t, newDesk(t))).Session(me, lines{})
	defer s.Close()
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7}}}`))
	link := &heard{}
	_, h := s.hosted(t.Context(), m, false, link)
	for i := range 1000 {
		h.progress(float64(i), 1000, "")
		h.progress(0, 1000, "")
	}
	if link.n != maxProgress {
		t.Errorf("told %d times", link.n)
	}
	h.since = time.Now().Add(-time.Second)
	if h.progress(1001, 0, ""); fmt.Sprint(link.last) != "map[progress:1001 progressToken:{[55]}]" {
		t.Errorf("told %v", link.last)
	}
	h.end()
	h.since = time.Now().Add(-time.Second)
	if h.progress(1002, 0, ""); link.n != maxProgress+1 {
		t.Error("told when nobody waits")
	}
}

// An error of a server that says more than words stays an error, with its code and its data; others
// are results that a model sees.
func TestErrorsOfServers(t *testing.T) {
	o := options(t, newDesk(t))
	var fault *call.Fault
	pipeline(&o).OnCall = func(_ context.Context, c call.Call) (call.Result, error) {
		f := facts.New()
		f.Status = facts.Failed
		return call.Result{
			CallID: c.ID, Status: facts.Failed, IsError: true, Fault: fault, Facts: f,
			Content: []call.Content{call.Text("the server refused: no")},
		}, nil
	}
	s := New(o).Session(me, lines{})
	defer s.Close()
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__own"}}`))
	for _, row := range []struct {
		why   string
		fault *call.Fault
		want  string
	}{
		{"no error", nil, "result"},
		{"words alone", &call.Fault{Code: -32602, Message: "no"}, "result"},
		{
			"a capability that the client lacks",
			&call.Fault{
				Code: jsonrpc.CodeCapability, Message: "sampling", Data: parse(t, `{"requiredCapabilities":{"sampling":{}}}`),
			}, `-32021 sampling {"requiredCapabilities":{"sampling":{}}}`,
		},
	} {
		fault = row.fault
		got, err := s.Answer(t.Context(), m, lines{})
		said := "result"
		var e *jsonrpc.Error
		if errors.As(err, &e) {
			said = fmt.Sprintf("%d %s %s", e.Code, e.Message, e.Data.Raw())
		} else if b, _ := json.Marshal(got); !strings.Contains(string(b), `"isError":true`) {
			said = string(b)
		}
		if said != row.want {
			t.Errorf("%s: %s", row.why, said)
		}
	}
}

// Long lists of offers come in pages that hold each once.
func TestPagesOfOffers(t *testing.T) {
	var list []strictjson.Value
	for i := range 2*pageSize + 1 {
		list = append(list, parse(t, fmt.Sprintf(`{"uri":"x:%d","name":"n"}`, i)))
	}
	o := options(t, newDesk(t))
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{},
		Texts:     catalogtest.Words{},
		Offers: map[string]catalog.OfferSource{"s": func(context.Context) (catalog.Offer, error) {
			return catalog.Offer{Resources: list}, nil
		}},
	})
	defer o.Catalogue.Close()
	s := New(o).Session(me, lines{})
	defer s.Close()
	seen, pages, cursor := map[any]bool{}, 0, ""
	for {
		m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{` + cursor + `}}`))
		got, err := s.Answer(t.Context(), m, lines{})
		if err != nil {
			t.Fatal(err)
		}
		pages++
		page := got.(map[string]any)
		for _, r := range page["resources"].([]any) {
			seen[r.(map[string]any)["uri"]] = true
		}
		next, more := page["nextCursor"].(string)
		if !more {
			break
		}
		cursor = `"cursor":"` + next + `"`
	}
	if pages != 3 || len(seen) != len(list) {
		t.Errorf("%d resources in %d pages", len(seen), pages)
	}
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"cursor":"%%%"}}`))
	if _, err := s.Answer(t.Context(), m, lines{}); err == nil {
		t.Error("a cursor of somebody else was taken")
	}
}
