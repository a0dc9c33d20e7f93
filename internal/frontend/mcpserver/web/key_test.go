package web

import (
	"fmt"
	"testing"
)

// A call has the idempotency key of its header or of its _meta. Two that differ, and one that is no text, make a key
// that the pipeline refuses as malformed.
func TestIdempotencyKey(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	for _, row := range []struct{ why, meta, header, want string }{
		{"none", `{}`, "", ""},
		{"of the header", `{}`, "k1", "k1"},
		{"of _meta", `{"waldo/idempotency_key":"k2"}`, "", "k2"},
		{"twice the same", `{"waldo/idempotency_key":"k3"}`, "k3", "k3"},
		{"two that differ", `{"waldo/idempotency_key":"k4"}`, "k5", "\x00"},
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
