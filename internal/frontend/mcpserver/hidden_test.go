package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/testing/catalogtest"
)

// A principal that may not use a tool learns nothing of it, in either era: no list or search shows it. The pipeline
// denies a call of it, with the same words whether or not the arguments fit its schema.
func TestHiddenFromPrincipals(t *testing.T) {
	for era, meta := range map[string]string{
		"legacy": "", "modern": `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{}}`,
	} {
		t.Run(era, func(t *testing.T) {
			desk := newDesk(t)
			o := options(t, desk)
			o.Catalogue = catalog.New(catalog.Options{
				Contracts: catalogtest.Rules[catalog.Viewer]{Allowed: func(cap call.Capability, v catalog.Viewer) bool {
					return cap != "s.echo" || v.Principal == "os:0" && v.Channel == "mcp"
				}},
				Texts:    catalogtest.Words{},
				Builtins: catalog.Builtins(),
				Sources:  tools(t),
			})
			defer o.Catalogue.Close()
			srv := New(o)
			say := func(who call.Principal, method, params string) string {
				s := srv.Session(Who{Session: "n_1", Principal: who}, lines{})
				defer s.Close()
				m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` +
					strings.TrimPrefix(params+meta, ",") + `}}`))
				if err != nil {
					t.Fatal(err)
				}
				got, wrong := s.Answer(t.Context(), m, lines{})
				if wrong != nil {
					return wrong.Error()
				}
				b, wrong := json.Marshal(got)
				if wrong != nil {
					t.Fatal(wrong)
				}
				return string(b)
			}
			for _, row := range []struct{ method, params string }{
				{"tools/list", ""},
				{"tools/call", `"name":"search_tools","arguments":{"query":"echo","detail":"full"}`},
			} {
				if got := say("os:0", row.method, row.params); !strings.Contains(got, "s__echo") {
					t.Fatalf("control: %s: %s", row.method, got)
				}
				if got := say("os:1", row.method, row.params); strings.Contains(got, "echo") {
					t.Errorf("%s tells of it: %s", row.method, got)
				}
			}
			const misfit = `"name":"s__echo","arguments":{"message":1}`
			if got := say("os:0", "tools/call", misfit); !strings.Contains(got, "do not fit the tool") || desk.count() != 0 {
				t.Fatalf("control: %s", got)
			}
			if got := say("os:1", "tools/call", misfit); strings.Contains(got, "fit") || desk.last().Capability != "s.echo" {
				t.Errorf("the pipeline did not decide: %s", got)
			}
		})
	}
}

// The server refuses a call whose arguments do not fit, and records it. If it cannot record it, it reports waldo's
// own failure.
func TestAMisfitIsOnRecord(t *testing.T) {
	desk := newDesk(t)
	o := options(t, desk)
	var on []call.Call
	var broken error
	pipeline(&o).OnRefuse = func(_ context.Context, c call.Call, why call.Reason) (call.Result, error) {
		on = append(on, c)
		if why.Code != "args.schema" || !strings.Contains(why.Text, "message") {
			t.Errorf("the reason: %+v", why)
		}
		f := facts.New()
		f.Status, f.SideEffect = facts.Denied, facts.None
		return call.Result{
			CallID: c.ID, DecisionID: "d_no", Status: facts.Denied, IsError: true, Facts: f, Why: []call.Reason{why},
		}, broken
	}
	s := New(o).Session(me, lines{})
	defer s.Close()
	for _, row := range []struct{ params, want string }{
		{`"name":"s__echo","arguments":{"message":"x"}`, `"fine"`},
		{`"name":"s__echo","arguments":{"message":1}`, `do not fit the tool`},
		{`"name":"search_tools","arguments":{"query":1}`, `do not fit the tool`},
		{`"name":"s__echo","arguments":{}`, `waldo itself failed`},
	} {
		if strings.Contains(row.want, "failed") {
			broken = errors.New("disk full")
		}
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + row.params + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, wrong := s.Answer(t.Context(), m, lines{})
		b, _ := json.Marshal(got)
		if wrong != nil || !strings.Contains(string(b), row.want) {
			t.Errorf("%s: %s %v", row.params, b, wrong)
		}
		if row.params[len(row.params)-2] == '1' && strings.Contains(row.params, "echo") &&
			!strings.Contains(string(b), `"waldo/decision_id":"d_no"`) {
			t.Errorf("the decision is not named: %s", b)
		}
	}
	if len(on) != 2 || on[0].Capability != "s.echo" || on[0].Principal != me.Principal ||
		on[0].ToolDigest == "" || desk.count() != 1 {
		t.Errorf("on record: %+v, and %d calls", on, desk.count())
	}
}
