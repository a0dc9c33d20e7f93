package web

import (
	"fmt"
	"testing"

	"waldo/internal/model/call"
)

// A call has the idempotency key of its header or of its _meta. Two that differ, and one that is no text, make a key
// that the pipeline refuses as two keys or as malformed.
func TestIdempotencyKey(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	for _, row := range []struct{ why, meta, header, want string }{
		{"none", `{}`, "", ""},
		{"of the header", `{}`, "k1", "k1"},
		{"of _meta", `{"waldo/idempotency_key":"k2"}`, "", "k2"},
		{"twice the same", `{"waldo/idempotency_key":"k3"}`, "k3", "k3"},
		{"two that differ", `{"waldo/idempotency_key":"k4"}`, "k5", "\x00\x00"},
		{"no text", `{"waldo/idempotency_key":7}`, "", "\x00"},
		{"empty", `{"waldo/idempotency_key":""}`, "", "\x00"},
	} {
		headers := []string{"Mcp-Session-Id", id}
		if row.header != "" {
			headers = append(headers, "Idempotency-Key", row.header)
		}
		status, _, body := h.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__echo",`+
			`"arguments":{},"_meta":%s}}`, row.meta), headers...)
		if status != 200 {
			t.Fatalf("%s: %d %s", row.why, status, body)
		}
		if got := h.desk.last().Key; got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	calls := len(h.desk.calls)
	if status, _, body := h.ask(echo, "Mcp-Session-Id", id, "Idempotency-Key", "a", "Idempotency-Key", "b"); status != 400 ||
		len(h.desk.calls) != calls {
		t.Errorf("two headers: %d %s", status, body)
	}
}

// A call stands at the place in a trace of its _meta, else of its headers. Two places are not mixed.
func TestTraceOfHeaders(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	a, b := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-11111111111111111111111111111111-2222222222222222-00"
	for _, row := range []struct {
		why, meta, parent, state string
		want                     call.Trace
	}{
		{"none", `{}`, "", "", call.Trace{}},
		{"of the headers", `{}`, a, "k=v", call.Trace{Parent: a, State: "k=v"}},
		{"of _meta", fmt.Sprintf(`{"traceparent":%q}`, b), a, "k=v", call.Trace{Parent: b}},
		{"malformed", `{}`, "00-x", "k=v", call.Trace{}},
	} {
		headers := []string{"Mcp-Session-Id", id}
		if row.parent != "" {
			headers = append(headers, "traceparent", row.parent, "tracestate", row.state)
		}
		status, _, body := h.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__echo",`+
			`"arguments":{},"_meta":%s}}`, row.meta), headers...)
		if got := h.desk.last().Trace; status != 200 || got != row.want {
			t.Errorf("%s: %d %+v, want %+v: %s", row.why, status, got, row.want, body)
		}
	}
}
