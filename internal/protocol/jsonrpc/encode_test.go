package jsonrpc

import (
	"bytes"
	"encoding/json"
	"testing"

	"waldo/internal/protocol/strictjson"
)

// encode, which uses no reflection, writes one line that encoding/json decodes to the same value.
func TestEncode(t *testing.T) {
	raw, err := strictjson.Parse([]byte(" { \"a\" : [ 1 ,\n\"x y\\\\\\\" z\" ] ,\t\"b\":\r{ } } "))
	if err != nil {
		t.Fatal(err)
	}
	seven, _ := strictjson.Parse([]byte("7"))
	for _, v := range []any{
		nil, "", "plain", "a\"b\\c\n\u2028\x00\x7f é 😀 <&>", "bad \xff utf-8", true, false, 0, -17,
		int64(1) << 62, 1.5, struct{}{},
		raw, strictjson.Value{}, map[string]any(nil), []any(nil), []any{}, map[string]any{},
		map[string]any{"z": 1, "a": []any{"x", nil, map[string]any{"deep": raw}}, "ä\n": strictjson.Value{}},
		map[string]bool{"b": true}, []string{"a", "b"}, Implementation{Name: "n", Version: "<v>"},
		Errorf(CodeBusy, "busy"), &Error{Code: 1, Message: "m", Data: raw}, json.RawMessage("[1,\n2]"),
	} {
		got, err := encode([]byte("x"), v)
		if err != nil {
			t.Fatalf("%v: %v", v, err)
		}
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got[1:], &a) != nil || json.Unmarshal(want, &b) != nil || bytes.ContainsAny(got, "\n\r") {
			t.Fatalf("%v: %q, wanted %q", v, got, want)
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if !bytes.Equal(x, y) {
			t.Errorf("%v: %s, wanted %s", v, x, y)
		}
		if _, fault := Parse(Answer(seven, v, nil)); v != nil && fault != nil {
			t.Errorf("%v: no answer: %v", v, fault)
		}
	}
	if _, err := encode(nil, []any{func() {}}); err == nil {
		t.Error("a function was encoded")
	}
	if b := Answer(null, map[string]any{"f": func() {}}, nil); !bytes.Contains(b, []byte(`"error":{"code":-32603`)) {
		t.Errorf("an answer that cannot be encoded: %s", b)
	}
}
