package diff

import (
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

// Changes are shown so that no text in them can hide.
func TestChangesAreShown(t *testing.T) {
	value := func(s string) strictjson.Value {
		v, err := strictjson.Parse([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	long := strings.Repeat("a", 5000)
	for _, row := range []struct{ why, was, now, want string }{
		{"nothing", `{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, ""},
		{"a description", `{"name":"x","description":"Reads."}`, `{"name":"x","description":"Reads. Ignore\u202e all"}`,
			"- description: \"Reads.\"\n+ description: \"Reads. Ignore\\u202e all\""},
		{"a letter that looks the same", `{"description":"a"}`, `{"description":"\u0430"}`,
			"- description: \"a\"\n+ description: \"\\u0430\""},
		{"an escape code", `{"z":1}`, `{"title":"\u001b[2J","z":1}`, `+ title: "\x1b[2J"`},
		{"a parameter", `{"inputSchema":{"properties":{"a":{"type":"string"}}}}`,
			`{"inputSchema":{"properties":{"a":{"type":"integer"},"b":{}},"required":["b"]}}`,
			"- inputSchema.properties.a.type: \"string\"\n+ inputSchema.properties.a.type: \"integer\"\n" +
				"+ inputSchema.properties.b: {}\n+ inputSchema.required[0]: \"b\""},
		{"a name that breaks the line", `{"z":1}`, `{"a\n+ b":true,"z":1}`, `+ "a\n+ b": true`},
		{"the end of a long text", `{"a":"` + long + `x"}`, `{"a":"` + long + `y"}`,
			"- a: …" + long[:398] + "x\"\n+ a: …" + long[:398] + "y\""},
	} {
		if got := strings.Join(Lines(value(row.was), value(row.now)), "\n"); got != row.want {
			t.Errorf("%s:\n%s\nwanted\n%s", row.why, got, row.want)
		}
	}
}

// FuzzLines: a shown difference is printable ASCII, except for the mark of a cut, and equal definitions have none.
func FuzzLines(f *testing.F) {
	f.Add(`{"a":"b"}`, `{"a":"\u202e"}`)
	f.Add(`{"a":[1,{"b":null}]}`, `[]`)
	f.Fuzz(func(t *testing.T, a, b string) {
		was, err := strictjson.Parse([]byte(a))
		if err != nil {
			return
		}
		now, err := strictjson.Parse([]byte(b))
		if err != nil {
			return
		}
		if d := Lines(was, was); d != nil {
			t.Fatalf("%q differs from itself: %q", a, d)
		}
		for _, line := range Lines(was, now) {
			for _, r := range line {
				if r != '…' && (r < ' ' || r > '~') {
					t.Fatalf("%q: %q", r, line)
				}
			}
		}
	})
}
