package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// TestBrokenAway: a call that failed because the store is away has its id, its side effect and when to come back.
func TestBrokenAway(t *testing.T) {
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, facts.None
	r := call.Result{CallID: "c_1", Status: facts.Failed, Facts: f, Why: []call.Reason{call.StoreAway()}}
	for _, want := range []string{"store.away", "c_1", "known: it did not", "in 10 s", "retry_after"} {
		if got, _ := json.Marshal(broken(call.Call{ID: "c_1"}, r)); !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %q", got, want)
		}
	}
	r.Why = nil
	if got, _ := json.Marshal(broken(call.Call{ID: "c_1"}, r)); strings.Contains(string(got), "store.away") {
		t.Errorf("control: %s", got)
	}
}

// The words for the model say when to come back, and that a tool itself answered with an error.
func TestEpilogue(t *testing.T) {
	failed := call.Result{Status: facts.Failed, DecisionID: "d_1", IsError: true, Answered: true,
		Facts: facts.Facts{SideEffect: facts.Confirmed}}
	rests := failed
	rests.Why = []call.Reason{{Code: "upstream.resting", RetryAfter: 7}}
	open := call.Result{Status: facts.Denied, DecisionID: "d_1", Why: []call.Reason{{Code: "upstream.open", RetryAfter: 5}}}
	for _, row := range []struct {
		why   string
		r     call.Result
		says  string
		again bool
	}{
		{"control", failed, "the tool answered with its own error", false},
		{"a server that rests", rests, "make the same call again in 7 s", true},
		{"an open breaker", open, "make the same call again in 5 s", true},
	} {
		got := Epilogue(row.r)
		if !strings.Contains(got, row.says) || strings.Contains(got, "again in") != row.again {
			t.Errorf("%s: %s", row.why, got)
		}
	}
}

// The model gets the undo of a call in words. A call without one has none.
func TestUndoInWords(t *testing.T) {
	said := func(r call.Result) (all string) {
		for _, b := range (&Session{d: &Server{}}).content(r, "") {
			m, _ := b.(map[string]any)
			text, _ := m["text"].(string)
			all += text
		}
		return all
	}
	r := call.Result{CallID: "c_1", Status: facts.OK, Content: []call.Content{call.Text("made")}}
	if got := said(r); strings.Contains(got, "undo") {
		t.Errorf("control: %s", got)
	}
	r.Undo = &call.Undo{By: "s.delete"}
	if got := said(r); !strings.Contains(got, "waldo undo c_1 calls s.delete") {
		t.Error(got)
	}
}

// A header and _meta that differ give two keys; equal ones give one.
func TestKeyOfARequest(t *testing.T) {
	for _, row := range []struct{ header, meta, want string }{
		{"k", "k", "k"}, {"", "k", "k"}, {"k", "l", call.TwoKeys}, {"k", "", "\x00"},
	} {
		v, err := strictjson.Parse([]byte(`{"_meta":{"waldo/idempotency_key":"` + row.meta + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := keyOf(jsonrpc.Message{Params: v, Key: row.header}); got != row.want {
			t.Errorf("header %q, _meta %q: %q, want %q", row.header, row.meta, got, row.want)
		}
	}
}
