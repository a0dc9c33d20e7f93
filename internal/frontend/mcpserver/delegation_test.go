package mcpserver

import (
	"testing"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// TestDelegationOf: a token that a host names in _meta reaches the pipeline; one that is no text is none that holds, and
// never no token.
func TestDelegationOf(t *testing.T) {
	for params, want := range map[string]string{
		`{"name":"x"}`: "",
		`{"name":"x","_meta":{"waldo/delegation":"waldo_dg_x"}}`: "waldo_dg_x",
		`{"name":"x","_meta":{"waldo/delegation":""}}`:           "\x00",
		`{"name":"x","_meta":{"waldo/delegation":null}}`:         "\x00",
		`{"name":"x","_meta":{"waldo/delegation":["a"]}}`:        "\x00",
	} {
		v, err := strictjson.Parse([]byte(params))
		if err != nil {
			t.Fatal(err)
		}
		if got := delegationOf(jsonrpc.Message{Params: v}); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
}
