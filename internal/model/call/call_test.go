package call_test

import (
	"strings"
	"testing"

	"waldo/internal/model/call"
)

func TestParseArgs(t *testing.T) {
	for _, row := range []struct {
		why, in, raw string // raw empty: refused
	}{
		{"an object", `{"a":1}`, `{"a":1}`},
		{"nothing stands for an empty object", "", "{}"},
		{"null stands for an empty object", "null", "{}"},
		{"an array is not arguments", "[]", ""},
		{"a name twice", `{"a":1,"a":2}`, ""},
		{"too large", `{"a":"` + strings.Repeat("x", call.MaxArgs) + `"}`, ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			a, err := call.ParseArgs([]byte(row.in))
			if (err != nil) != (row.raw == "") {
				t.Fatal(err)
			}
			if err == nil && string(a.Raw()) != row.raw {
				t.Errorf("got %s", a.Raw())
			}
		})
	}
}

func TestDigest(t *testing.T) {
	digest := func(s string) string {
		a, err := call.ParseArgs([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return a.Digest()
	}
	if digest(`{"a":1,"b":"\u0041"}`) != digest(` { "b" : "A", "a" : 1.0 } `) {
		t.Error("the same arguments, written differently, have two digests")
	}
	if digest(`{"id":9007199254740993}`) == digest(`{"id":9007199254740992}`) {
		t.Error("two numbers that a float64 cannot tell apart have one digest")
	}
	if digest("{}") != (call.Args{}).Digest() {
		t.Error("the zero Args and the empty object differ")
	}
}
