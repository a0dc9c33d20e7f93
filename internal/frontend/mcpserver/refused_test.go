package mcpserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// TestSuspendedCallsAreBounded: so many calls wait in all, and a call asks so often.
func TestSuspendedCallsAreBounded(t *testing.T) {
	asked, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, s := parking(t, &asker{}, func(o *Options) { o.Park = time.Minute })
	for _, row := range []struct {
		why         string
		open, again int
		good        bool
	}{
		{"control", maxSuspended - 1, maxAgain, true},
		{"too many wait", maxSuspended, 0, false},
		{"asked too often", 0, maxAgain + 1, false},
	} {
		l := newSuspendedCalls(nil)
		for i := range row.open {
			l.open[fmt.Sprint(i)] = &suspendedCall{who: call.Principal(fmt.Sprint("p", i))}
		}
		given := false
		p := &suspendedCall{
			d: s.d, who: "one", asked: asked, again: row.again, cancel: func() { given = true }, host: &host{},
		}
		_, err := l.suspend(p, time.Now())
		if (err == nil) != row.good || given == row.good || err != nil &&
			!strings.Contains(err.Error(), "too many calls wait") {
			t.Errorf("%s: %v, given up %v", row.why, err, given)
		}
	}
}

// TestLeanToolsDoNotNest: call_tool calls a tool of a server, never itself or run_code.
func TestLeanToolsDoNotNest(t *testing.T) {
	for params, good := range map[string]bool{
		`{"name":"call_tool","arguments":{"name":"s__x"}}`:                 true,
		`{"name":"call_tool","arguments":{"name":"call_tool"}}`:            false,
		`{"name":"call_tool","arguments":{"name":"run_code"}}`:             false,
		`{"name":"call_tool","arguments":{"name":7}}`:                      false,
		`{"name":"call_tool","arguments":{}}`:                              false,
		`{"name":"run_code","arguments":{"language":"python","code":"1"}}`: true,
		`{"name":"run_code","arguments":{"language":"python","code":1}}`:   false,
		`{"name":"run_code","arguments":{"language":"perl","code":"1"}}`:   false,
		`{"name":"run_code","arguments":{"language":"python"}}`:            false,
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, no := unwrap(m, true); (no == nil) != good {
			t.Errorf("%s: %v", params, no)
		}
	}
}
