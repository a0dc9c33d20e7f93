package web

import (
	"net/http"
	"strings"
	"testing"

	"waldo/internal/protocol/jsonrpc"
)

// For any headers and body, an accepted modern request has headers that match its body.
func FuzzAgree(f *testing.F) {
	f.Add("2026-07-28", "tools/call", "s__echo",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo",`+metaText+`}}`)
	f.Add("2026-07-28", "resources/read", "=?base64?ZmlsZTovLy9h?=",
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a",`+metaText+`}}`)
	f.Add("2025-11-25", "", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	f.Add("v999", "x", "=?base64??=",
		`{"jsonrpc":"2.0","id":"x","method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999"}}}`)
	f.Fuzz(func(t *testing.T, version, method, name, body string) {
		m, fault := jsonrpc.Parse([]byte(body))
		if fault != nil {
			return
		}
		h := http.Header{headerVersion: {version}, headerMethod: {method}, headerName: {name}}
		modern, fault := agree(h, m)
		if fault != nil || !modern || !m.IsRequest() {
			return
		}
		meta, _ := m.Param("_meta").Members()
		said, _ := meta[jsonrpc.MetaRevision].Text()
		if version != jsonrpc.Modern || said != version || method != m.Method {
			t.Fatalf("%q %q pass with %s", version, method, body)
		}
		if in := named[m.Method]; in != "" {
			want, _ := m.Param(in).Text()
			told, ok := decode(name)
			if !ok || told != want {
				t.Fatalf("%q passes with %s", name, body)
			}
			if !strings.HasPrefix(name, "=?base64?") && name != want {
				t.Fatalf("%q passes for %q", name, want)
			}
		}
	})
}
