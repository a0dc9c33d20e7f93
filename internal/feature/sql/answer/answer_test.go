package answer

import (
	"context"
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

func TestRows(t *testing.T) {
	if r := New(nil, Limits{}); r.Add([]Value{nil}) || r.Cut != "rows" {
		t.Error("the zero limits allow no row")
	}
	r := New([]Column{{"a", "text"}}, Limits{Rows: 2, Bytes: 100, Values: 10})
	if !r.Add([]Value{Text("x")}) || r.Add([]Value{Text(strings.Repeat("y", 100))}) || r.Cut != "bytes" || len(r.Rows) != 1 {
		t.Error("bytes are bounded:", r)
	}
	if got := Text("a\xffb\x1b"); string(got) != `"a\ufffdb\u001b"` && string(got) != "\"a\uFFFDb\\u001b\"" {
		t.Errorf("%s", got)
	}
	for n, want := range map[int64]string{1 << 53: "9007199254740992", 1<<53 + 1: `"9007199254740993"`, -1 << 62: `"-4611686018427387904"`} {
		if got := string(Integer(n)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for in, want := range map[string]string{`{"a": 1}`: `{"a": 1}`, `{"a":1,"a":2}`: `"{\"a\":1,\"a\":2}"`, `9007199254740993`: `"9007199254740993"`} {
		if got := string(JSON(in)); got != want {
			t.Errorf("%s becomes %s", in, got)
		}
	}
}

// TestValues: an answer has a number of values too, with those inside of JSON, and is shown within its call's time.
func TestValues(t *testing.T) {
	row := []Value{Integer(1), Integer(2), nil}
	r := New(make([]Column, 3), Limits{Rows: 100, Bytes: 1000, Values: 8})
	//lint:ignore SA4000 the second call meets another state
	if !r.Add(row) || !r.Add(row) || r.Add(row) || r.Cut != "values" || len(r.Rows) != 2 || r.TooLarge() != nil {
		t.Errorf("%d rows, cut by %q", len(r.Rows), r.Cut)
	}
	r = New(make([]Column, 1), Limits{Rows: 100, Bytes: 1000, Values: 4})
	if r.Add([]Value{JSON("[1,2,3,4]")}) || r.Cut != "values" || r.TooLarge() == nil || r.TooLarge().Code != "sql.large" {
		t.Errorf("values of JSON: cut by %q, %v", r.Cut, r.TooLarge())
	}
	if !r.Add([]Value{JSON("[1,2]")}) {
		t.Error("control: a small document is too large")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Show(over); err == nil {
		t.Error("it is shown after the end of its call")
	}
}

// FuzzRow: every value is strict JSON, and a row of the text stays one line.
func FuzzRow(f *testing.F) {
	f.Add("a|b\nc", `{"x": [1, 2]}`)
	f.Fuzz(func(t *testing.T, text, document string) {
		r := New([]Column{{text, text}, {"j", "json"}}, Limits{Rows: 1, Bytes: 1 << 20, Values: 1 << 20})
		if !r.Add([]Value{Text(text), JSON(document)}) {
			return
		}
		if _, err := r.Structured(); err != nil {
			t.Errorf("%q %q: %v", text, document, err)
		}
		for _, v := range r.Rows[0] {
			if _, err := strictjson.Parse(v); err != nil {
				t.Errorf("%s: %v", v, err)
			}
		}
		shown, err := r.Show(t.Context())
		if n := strings.Count(shown, "\n"); n != 2 || err != nil {
			t.Errorf("%q: %d line ends, %v", shown, n, err)
		}
	})
}
