package cli

import (
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

// TestTyped: a value that the schema wants as text is the text as typed; any other is JSON, or else text.
func TestTyped(t *testing.T) {
	input, err := strictjson.Parse([]byte(`{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"integer"},
		"any":{},"list":{"type":["string","null"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for pairs, want := range map[string]string{
		"id=42": `{"id":"42"}`, "id=true": `{"id":"true"}`, `id="42"`: `{"id":"42"}`, "id=x": `{"id":"x"}`, "n=42": `{"n":42}`,
		"any=42": `{"any":42}`, "list=null": `{"list":null}`, "other=9007199254740993": `{"other":9007199254740993}`,
		"id=42 n=1": `{"id":"42","n":1}`, `id={"a":1}`: `{"id":"{\"a\":1}"}`, "id=": `{"id":""}`,
	} {
		args := strings.Split(pairs, " ")
		a, err := Parse(nil, args)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(Typed(args, a, input).Value().Canonical()); got != want {
			t.Errorf("%s: %s, want %s", pairs, got, want)
		}
	}
	a, _ := Parse(strings.NewReader(`{"id":42}`), []string{"-"})
	if got := string(Typed([]string{"-"}, a, input).Raw()); got != `{"id":42}` {
		t.Errorf("an object on standard input stays: %s", got)
	}
}
