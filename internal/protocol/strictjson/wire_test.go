package strictjson_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/protocol/strictjson"
)

func TestParse(t *testing.T) {
	for _, row := range []struct {
		why, in string
		ok      bool
	}{
		{"an object", `{"a":1}`, true},
		{"white space around it", " [1, 2]\n", true},
		{"nothing", "", false},
		{"two values", `{} {}`, false},
		{"a name twice", `{"a":1,"a":2}`, false},
		{"a name twice, once escaped", `{"a":1,"\u0061":2}`, false},
		{"a name twice further in", `[{"x":{"a":1,"a":2}}]`, false},
		{"names that differ in case are two names", `{"a":1,"A":2}`, true},
		{"bad UTF-8", "\"\xff\"", false},
		{"a lone surrogate", `"\ud800"`, false},
		{"a byte order mark", "\ufeff{}", false},
		{"a comment", `{}//`, false},
		{"a trailing comma", `[1,]`, false},
		{"NaN", `NaN`, false},
		{"cut off", `{"a":`, false},
		{"as deep as may be", strings.Repeat("[", strictjson.MaxDepth) + strings.Repeat("]", strictjson.MaxDepth), true},
		{"one deeper", strings.Repeat("[", strictjson.MaxDepth+1) + strings.Repeat("]", strictjson.MaxDepth+1), false},
	} {
		t.Run(row.why, func(t *testing.T) {
			if _, err := strictjson.Parse([]byte(row.in)); (err == nil) != row.ok {
				t.Errorf("%.60q: error %v", row.in, err)
			}
		})
	}
}

func TestShallow(t *testing.T) {
	open, end := strings.Repeat("[", strictjson.MaxDepth), strings.Repeat("]", strictjson.MaxDepth)
	const left = `"` + strictjson.TooDeep + `"`
	for _, row := range []struct{ why, in, want string }{
		{"as deep as may be", open + `"[[[ \"{"` + end, ""},
		{"a list", open + `1,[2],3` + end, open + `1,` + left + `,3` + end},
		{"two objects, with brackets in texts", open + `{"a":["\"]}"]},{},"[{"` + end, open + left + `,` + left + `,"[{"` + end},
		{"cut off", open + `[1`, open + left},
	} {
		if got := string(strictjson.Shallow([]byte(row.in))); got != row.want {
			t.Errorf("%s: got %q, want %q", row.why, got, row.want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, row := range []struct{ why, in, want string }{
		{"names are sorted and space goes", "{ \"b\":1,\n\"a\":2 }", `{"a":2,"b":1}`},
		{"one spelling of a string", `"\u0041\/"`, `"A/"`},
		{"one spelling of a number", `[1.0,1e2,-0.0,0.10]`, `[1,100,0,0.1]`},
		{"large integers keep their digits", `[12345678901234567890,12345678901234567891]`,
			`[12345678901234567890,12345678901234567891]`},
	} {
		t.Run(row.why, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(row.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(v.Canonical()); got != row.want {
				t.Errorf("got %s, wanted %s", got, row.want)
			}
		})
	}
}

// sound checks the promises of Parse token by token.
func sound(b []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.ReadToken(); err != nil || d.StackDepth() > strictjson.MaxDepth {
			return false
		}
		if d.StackDepth() == 0 {
			_, err := d.ReadToken()
			return err == io.EOF
		}
	}
}

// FuzzParse: accepted text is valid JSON, is returned unchanged, and its canonical form is a fixed point.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":[1,2.5e3,"\u00e9",null]}`, `{"a":1,"a":2}`, "\"\xff\"", `12345678901234567890`,
		strings.Repeat("[", 201) + `"]`, `{"a":"\\\\"}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := strictjson.Parse(b)
		if (err == nil) != sound(b) {
			t.Fatalf("%q: %v, and token by token it is otherwise", b, err)
		}
		if (strictjson.Shallow(b) != nil) && err == nil {
			t.Fatalf("%q is not too deep, and was cut", b)
		}
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("let in %q", b)
		}
		if !bytes.Equal(v.Raw(), bytes.TrimSpace(b)) {
			t.Fatalf("changed %q to %q", b, v.Raw())
		}
		c := v.Canonical()
		again, err := strictjson.Parse(c)
		if err != nil {
			t.Fatalf("the canonical form %q of %q does not parse: %v", c, b, err)
		}
		if got := again.Canonical(); !bytes.Equal(got, c) {
			t.Fatalf("canonical %q, canonical again %q", c, got)
		}
	})
}

func BenchmarkParseAndDigest1KB(b *testing.B) {
	in := []byte(`{"rows":[` + strings.TrimSuffix(strings.Repeat(`{"id":17,"name":"a name","ok":true},`, 28), ",") + `]}`)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		v, err := strictjson.Parse(in)
		if err != nil {
			b.Fatal(err)
		}
		_ = v.Digest()
	}
}

// TestValuesAreBounded: a text of more values than MaxValues is refused before it is read, and weighs what they cost.
func TestValuesAreBounded(t *testing.T) {
	list := func(n int) []byte { return []byte("[" + strings.Repeat("1,", n-1) + "1]") }
	if _, err := strictjson.Parse(list(strictjson.MaxValues)); err != nil {
		t.Error("control:", err)
	}
	if _, err := strictjson.Parse(list(strictjson.MaxValues + 1)); err == nil ||
		!strings.Contains(err.Error(), "more than 200000 values") {
		t.Errorf("one more: %v", err)
	}
	quoted := []byte(`["` + strings.Repeat(`,{[`, strictjson.MaxValues) + `"]`)
	if _, err := strictjson.Parse(quoted); err != nil {
		t.Errorf("commas in a string: %v", err)
	}
	if w := strictjson.Weight(list(11_000)); w < 10_000*256 || w > 11_000*256 {
		t.Errorf("eleven thousand values weigh %d", w)
	}
	if w := strictjson.Weight(list(100)); w != len(list(100)) {
		t.Errorf("a few values weigh %d", w)
	}
}
