package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"waldo/internal/call"
	"waldo/internal/catalogue"
	"waldo/internal/jsonrpc"
)

// Who may not use a tool is told nothing of it, in either era: it is in no list and no search, and a call
// of it is refused by the corridor, whose words do not hang on whether the arguments fit its schema.
func TestHiddenFromPrincipals(t *testing.T) {
	for era, meta := range map[string]string{"legacy": "", "modern": `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`} {
		t.Run(era, func(t *testing.T) {
			desk := newDesk(t)
			o := options(t, desk)
			o.Catalogue = catalogue.New(catalogue.Options{Builtins: catalogue.Builtins(), Sources: tools(t), Clean: func(s string) string { return s },
				Visible: func(call.Capability) bool { return true },
				Usable: func(cap call.Capability, v catalogue.Viewer) bool {
					return cap != "s.echo" || v.Principal == "os:0" && v.Door == "mcp"
				}})
			defer o.Catalogue.Close()
			door := New(o)
			say := func(who call.Principal, method, params string) string {
				s := door.Session(Who{Session: "n_1", Principal: who}, lines{})
				defer s.Close()
				m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + strings.TrimPrefix(params+meta, ",") + `}}`))
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
				t.Errorf("the corridor did not decide: %s", got)
			}
		})
	}
}
