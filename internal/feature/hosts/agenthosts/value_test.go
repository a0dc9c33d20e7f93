package agenthosts

import (
	"strings"
	"testing"
)

// A refusal gives the position, and its message holds no part of a value.
func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1)
	for _, row := range []struct {
		why    string
		format Format
		text   string
		want   string
	}{
		{"a key twice, in JSON", JSON, "{\n  \"a\": 1,\n  \"a\": 2}", "f:3:3: the key a was written before, on line 2"},
		{"a key twice by another spelling", JSON, `{"a": 1, "\u0061": 2}`, "f:1:10: the key a was written before, on line 1"},
		{"a key twice, in TOML", TOML, "[a]\nx = 1\nx = 2\n", "f:3:1: not TOML"},
		{"a key twice, in YAML", YAML, "a: 1\nb: 2\na: 3\n", "f:3:1: the key a was written before, on line 1"},
		{"deep JSON", JSON, deep, "f:1:65: nested deeper than 64"},
		{"JSON so deep that a parser would run out of stack", JSON, strings.Repeat(`{"a":`, 1<<20), "nested deeper than 64"},
		{"deep TOML", TOML, "a = " + deep + strings.Repeat("]", maxDepth+1), "nested deeper than 64"},
		{"deep TOML by dots", TOML, strings.Repeat("a.", maxDepth+1) + "b = 1", "nested deeper than 64"},
		{"deep YAML", YAML, "a: " + deep + strings.Repeat("]", maxDepth+1), "nested deeper than 64"},
		{"not UTF-8", JSON, "{\"a\": \"\xff\"}", "f:1:1: the file is not UTF-8"},
		{"JSON that ends", JSON, `{"a": `, "f:1:7: not JSON: the file ends too early"},
		{"JSON that is none", JSON, "{\n\"ünï\": hunter2}", "f:2:8: not JSON: a value that JSON does not have"},
		{"no comma", JSON, "{\"a\": 1\n \"b\": 2}",
			"f:2:2: not JSON: invalid character '\"' after object value (expecting ',' or '}')"},
		{"a comment that does not end", JSON, "{} /* x", "not JSON"},
		{"a value in a message", TOML, "password = hunter2\n", "f:1:12: not TOML"},
		{"a tab in YAML", YAML, "a:\n\tb: 1\n", "f:2:1: not YAML"},
		{"an alias", YAML, "a: &x [1]\nb: *x\n", "f:1:4: anchors and aliases are not read"},
		{"a name in a message", YAML, "a: *hunter2\n", "f:1:1: not YAML: unknown anchor"},
		{"a merge key", YAML, "a: {b: 1}\nc:\n  <<: {d: 1}\n", "f:3:3: a key must be text"},
		{"two documents", YAML, "a: 1\n---\nb: 2\n", "a second document begins here"},
		{"a key that is a list", YAML, "? [a]\n: 1\n", "f:1:3: a key must be text"},
		{"large", TOML, strings.Repeat("#", maxConfig+1), "at most 1048576 are read"},
		{"large JSON", JSON, strings.Repeat(" ", maxFile+1), "at most 16777216 are read"},
	} {
		_, err := Parse(row.format, "f", []byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: wanted %q, got %v", row.why, row.want, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message shows a value: %v", row.why, err)
		}
	}
}

// The three formats give one tree.
func TestFormatsAgree(t *testing.T) {
	var trees []*Value
	for f, text := range map[Format]string{
		JSON: mark + "// c\n{\"s\": {\"x\": {\"command\": \"c\", /* c */ \"args\": [\"a\", \"b\"], \"n\": 1, \"on\": " +
			"true,},},}\n// last",
		TOML: "[s.x]\ncommand = 'c'\nargs = [\"a\", # c\n 'b']\nn = 1\non = true\n",
		YAML: "s:\n  x:\n    command: c # c\n    args: [a, 'b']\n    n: 1\n    \"on\": true\n",
	} {
		v, err := Parse(f, "f", []byte(text))
		if err != nil {
			t.Fatalf("%d: %v", f, err)
		}
		trees = append(trees, v)
		if at := v.Path("s", "x", "command").At; at.Line == 0 || at.Column == 0 {
			t.Errorf("%d: no place: %+v", f, at)
		}
	}
	for _, v := range trees[1:] {
		if !same(trees[0], v) {
			t.Errorf("%+v\n%+v", trees[0], v)
		}
	}
}

// For any file, parsing ends, its trees are bounded, and positions lie inside the text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"mcpServers":{"a":{"command":"x","args":["${A:-b}"]}}}`,
		"[mcp_servers.a]\ncommand='x'\n[[b]]\nc.d=1\n[b.e]\n", "extensions:\n  a:\n    cmd: x\n    args: [y]\n",
		"{/**/}//", "a = {b.c = [[1]], d = 1979-05-27}", "? a\n: |\n  b\n", "[[a]]\n[[a]]\nb=1", "{\"a\":{\"a\":[{}]}}"} {
		for form := range uint8(3) {
			f.Add(form, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, form uint8, text []byte) {
		v, err := Parse(Format(form%3), "f", text)
		if err != nil {
			p, ok := err.(*Problem)
			if !ok || p.Text == "" || p.At.Line < 1 || p.At.Column < 1 {
				t.Fatalf("an error without its place: %#v", err)
			}
			for _, c := range []byte(p.Error()) {
				if c < ' ' || c > '~' {
					t.Fatalf("a message that paints: %q", p.Error())
				}
			}
			return
		}
		// a value omitted in YAML has its position after the end
		most := 2
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // as YAML knows the ends of lines
			most += strings.Count(string(text), end)
		}
		bounded(t, v, 1, most)
		for _, h := range append(All(), Plain()) {
			if h.Format != Format(form%3) {
				continue
			}
			servers, _ := h.Read("f", v, "/p")
			for _, s := range servers {
				if len(s.Problems) == 0 && len(s.Command) == 0 && len(s.URL) == 0 {
					t.Fatalf("%s: a server that is nothing: %+v", h.Name, s)
				}
			}
		}
	})
}

func bounded(t *testing.T, v *Value, depth, most int) {
	if depth > 3*maxDepth || v.At.Line < 1 || v.At.Line > most || v.At.Column < 1 {
		t.Fatalf("depth %d, place %+v of %d lines", depth, v.At, most)
	}
	seen := map[string]bool{}
	for i := range v.Members {
		if m := &v.Members[i]; seen[m.Name] {
			t.Fatalf("%q twice", m.Name)
		}
		seen[v.Members[i].Name] = true
		bounded(t, &v.Members[i].Value, depth+1, most)
	}
	for i := range v.Items {
		bounded(t, &v.Items[i], depth+1, most)
	}
}
