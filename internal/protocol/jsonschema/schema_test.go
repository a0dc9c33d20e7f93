package jsonschema

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

func compile(t *testing.T, text string) *Schema {
	t.Helper()
	v, err := strictjson.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(v)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCheck(t *testing.T) {
	for _, row := range []struct{ schema, value, fault, why string }{
		{`{"type":"object","required":["id"]}`, `{"id":1}`, "", "what is asked for is there"},
		{`{"type":"object","required":["id"]}`, `{}`, `"id" is missing`, "what is asked for is absent"},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1.5}`, "/n: is number, want integer", "the place is named"},
		{`{"properties":{"n":{"type":"integer"}}}`, `{"n":1.0}`, "", "1.0 is an integer (2020-12 core 4.2.3)"},
		{`{"properties":{"a/b":{"type":"null"}}}`, `{"a/b":1}`, "/a~1b: is integer, want null",
			"a slash in a name is escaped"},
		{`{"additionalProperties":false,"properties":{"a":{}}}`, `{"a":1,"b":2}`, "/b: no such property", "a closed object"},
		{`{"additionalProperties":false,"patternProperties":{"(?<=x)y":{}}}`, `{"b":2}`, "",
			"a pattern that RE2 cannot express may match anything"},
		{`{"enum":["a",1,null]}`, `null`, "", "null among the values"},
		{`{"enum":["a",1,null]}`, `"b"`, "is not one of the allowed values", "another value"},
		{`{"const":{"a":[1]}}`, `{"a":[1]}`, "", "deep equality"},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `true`, "matches none of the 2 alternatives", "no alternative"},
		{`{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `1`, "matches 2 of the 2 alternatives, want exactly one",
			"two alternatives"},
		{`{"not":{"type":"string"}}`, `"x"`, "matches a schema that it must not match", "not"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`,
			`"b" is missing`, "then"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"b":1}`,
			`"c" is missing`, "else"},
		{`{"minLength":2}`, `"é"`, "has 1 characters, want at least 2", "characters, not bytes"},
		{`{"multipleOf":0.1}`, `0.3`, "", "0.3 is three times 0.1, whatever binary says"},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2,"a":1}]`, "/1: is there twice",
			"the order of names is no difference"},
		{`{"items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, "/1: not allowed here", "a tuple of draft-07"},
		{`{"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"type":"string"}}}`, `1`, "is integer, want string",
			"a pointer with escapes"},
		{`{"$ref":"#X","$defs":{"x":{"$anchor":"X","type":"string"}}}`, `1`, "is integer, want string", "an anchor"},
		{`{"properties":{"n":{"$ref":"#"}},"additionalProperties":false}`, `{"n":{"n":{"m":1}}}`, "/n/n/m: no such property",
			"a reference to the whole"},
		{`{"not":{"type":"string","format":"email"}}`, `"x"`, "", "not, of a part that is not enforced"},
		{`{"not":{"type":"string","format":"email"}}`, `1`, "", "not, of a part that is not enforced and does not match"},
		{`{"not":{"not":{"type":"string","format":"email"}}}`, `1`, "matches a schema that it must not match",
			"not of not: what is enforced below it"},
		{`{"oneOf":[{"format":"date"},{"format":"email"}]}`, `"x"`, "", "one of two that are not enforced"},
		{`{"oneOf":[{"format":"date"},{},{"type":"string"}]}`, `"x"`, "matches 2 of the 3 alternatives, want exactly one",
			"two that are enforced, and one that is not"},
		{`{"anyOf":[{"format":"date"},{"type":"integer"}],"not":{"anyOf":[{"format":"date"},{"type":"string"}]}}`, `"x"`,
			"matches a schema that it must not match", "an alternative that is enforced, after one that is not"},
		{`{"if":{"format":"date"},"then":{"minLength":9},"else":{"maxLength":0}}`, `"x"`, "",
			"neither then nor else, as the condition is not enforced"},
		{`{"contains":{"format":"date"},"maxContains":1}`, `["a","b"]`, "", "two items that are perhaps contained"},
		{`{"contains":{"type":"string","format":"date"},"minContains":2}`, `["a",1]`, "holds 0 of the items it must contain",
			"one item that is perhaps contained is not two"},
		{`{"not":{"propertyNames":{"pattern":"(?<=x)y"}}}`, `{"a":1}`, "", "not, of names that are not enforced"},
		{`{"not":{"unevaluatedProperties":false}}`, `{"a":1}`, "", "not, of properties that are not enforced"},
		{`{"not":{"unevaluatedProperties":true}}`, `{"a":1}`, "matches a schema that it must not match",
			"a keyword that allows everything is enforced"},
		{`{"type":"integer","multipleOf":0.5}`, `1e308`, "", "a quotient beyond float64"},
		{`{"multipleOf":0.123456789}`, `1e308`, "is not a multiple of 0.123456789", "a quotient beyond float64, with a rest"},
		{`{"pattern":"^\\s[\\s][^\\S]$"}`, `"\u00a0\ufeff\u2003"`, "", "white space of ECMA-262, not only of ASCII"},
		{`{"pattern":"^\\S[^\\s]$"}`, `"a\u00a0"`, `does not match the pattern "^\\S[^\\s]$"`, "and what is none"},
		{`{"pattern":"^[]\\s[:alpha:]\\s]+$"}`, `"]\u00a0a"`, "", "a class with a bracket and a class of POSIX"},
		{`{"properties":{"n":{}}}`, `{"n":1}`, "", "control: a declared name"},
		{`{"properties":{"n":{}}}`, `{"N":1}`, `/N: differs from "n" by case alone`, "a server may take it for the declared one"},
		{`{"properties":{"key":{}}}`, `{"\u212aey":1}`, "/\u212aey: differs from \"key\" by case alone", "the Kelvin sign"},
		{`{"properties":{"o":{"properties":{"n":{}}}}}`, `{"o":{"N":1}}`, `/o/N: differs from "n" by case alone`, "below"},
		{`{"type":"object"}`, `{"n":1,"N":2}`, `/n: differs from "N" by case alone`, "two names that nothing declares"},
		{`{"properties":{"n":{},"N":{}}}`, `{"n":1,"N":2}`, "", "both are declared"},
		{`{"properties":{"env":{}}}`, `{"env":{"Path":1,"PATH":2}}`, "", "a map of anything"},
		{`true`, `1`, "", "everything is allowed"},
		{`false`, `1`, "not allowed here", "nothing is allowed"},
	} {
		t.Run(row.why, func(t *testing.T) {
			faults := compile(t, row.schema).Check(decode(t, row.value))
			got := ""
			if len(faults) > 0 {
				got = faults[0].String()
			}
			if got != row.fault {
				t.Errorf("schema %s, value %s: %q, want %q", row.schema, row.value, got, row.fault)
			}
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, row := range []struct{ schema, want, why string }{
		{`{"$ref":"http://169.254.169.254/"}`, "leaves the schema", "nothing is fetched"},
		{`{"properties":{"x":{"$ref":"file:///etc/passwd"}}}`, "leaves the schema", "no file is read"},
		{`{"$ref":"other.json#/a"}`, "leaves the schema", "a relative reference has nowhere to go"},
		{`{"$ref":"#/nowhere"}`, "points nowhere", "a pointer to nothing"},
		{`{"$ref":"#nobody"}`, "no such anchor", "an anchor that is not there"},
		{`"oops"`, "neither an object nor a boolean", "a string is no schema"},
		{`null`, "neither an object nor a boolean", "null is no schema"},
		{`{"properties":{"a":5}}`, "neither an object nor a boolean", "a number is no schema"},
		{`{"minLength":"x"}`, "must be a number", "a limit that is no number"},
		{`{"anyOf":{}}`, "must be a list", "alternatives that are no list"},
		{`{"allOf":[` + strings.Repeat("true,", MaxNodes) + `true]}`, "more than", "too many parts"},
	} {
		t.Run(row.why, func(t *testing.T) {
			v, err := strictjson.Parse([]byte(row.schema))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Compile(v); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%.80s: %v, want %q", row.schema, err, row.want)
			}
		})
	}
}

// A hostile schema ends the check, not the process: go's stack is not endless, and time is money.
func TestHostileSchemasAreBounded(t *testing.T) {
	doubling := `{"$ref":"#/$defs/d0","$defs":{`
	for i := range 40 {
		doubling += `"d` + itoa(i) + `":{"anyOf":[{"allOf":[{"$ref":"#/$defs/d` + itoa(i+1) +
			`"},false]},{"$ref":"#/$defs/d` + itoa(i+1) + `"}]},`
	}
	doubling += `"d40":false}}`
	for _, row := range []struct{ schema, value, why string }{
		{`{"$ref":"#"}`, `{}`, "a schema that is itself"},
		{`{"allOf":[{"$ref":"#/$defs/b"}],"$defs":{"b":{"anyOf":[{"$ref":"#"}]}}}`, `{}`, "two schemas that are each other"},
		{doubling, `{}`, "alternatives that double forty times"},
	} {
		t.Run(row.why, func(t *testing.T) {
			begin := time.Now()
			faults := compile(t, row.schema).Check(decode(t, row.value))
			if len(faults) != 1 || faults[0].Text != "the schema takes too long to check" {
				t.Errorf("faults: %v", faults)
			}
			if d := time.Since(begin); d > 40*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

// The project's own test suite of JSON Schema, as the module google/jsonschema-go carries it.
func TestSuite(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skip("the module google/jsonschema-go is not downloaded, and with it the suite: go mod download fetches it")
	}
	notEnforced := map[string]string{
		"unevaluatedItems.json":      "left to the server",
		"unevaluatedProperties.json": "left to the server",
		"refRemote.json":             "nothing is fetched",
		"dynamicRef.json":            "a dynamic reference is read as a plain one",
		"anchor.json":                "nested $id is refused",
	}
	files, _ := filepath.Glob(filepath.Join(dir, "jsonschema", "testdata", "draft2020-12", "*.json"))
	if len(files) < 30 {
		t.Fatalf("the suite has %d files", len(files))
	}
	ran, refused := 0, 0
	for _, file := range files {
		if notEnforced[filepath.Base(file)] != "" {
			continue
		}
		r, n := runSuiteFile(t, file)
		ran, refused = ran+r, refused+n
	}
	t.Logf("%d checks agree; %d schemas refused", ran, refused)
	if ran < 780 || refused > 20 {
		t.Errorf("%d checks ran and %d schemas were refused", ran, refused)
	}
}

func runSuiteFile(t *testing.T, file string) (ran, refused int) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        any
			Valid       bool
		}
	}
	if err := json.Unmarshal(b, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		v, err := strictjson.Parse(g.Schema)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Compile(v)
		if err != nil {
			refused++
			continue
		}
		if strings.Contains(string(g.Schema), "unevaluated") {
			continue // left to the server
		}
		for _, c := range g.Tests {
			if got := len(s.Check(c.Data)) == 0; got != c.Valid {
				t.Errorf("%s: %s: %s: valid %v, want %v", filepath.Base(file), g.Description, c.Description, got, c.Valid)
			}
			ran++
		}
	}
	return ran, refused
}

// instances are a schema with values, of the corpus of generated code.
type instances struct {
	ID, Why string
	Input   struct {
		Schema json.RawMessage
		Tests  []struct {
			Data        any
			Valid       bool
			Description string
		}
	}
}

// TestInstances compares the arguments that a call may have with those that the corpus of schemas expects. A valid one
// is never refused. An invalid one is taken only below a keyword that the server checks itself.
func TestInstances(t *testing.T) {
	schemas, agree, refused, left := 0, 0, 0, map[string]int{}
	for _, r := range corpus.Rows[instances](t, "codegen.jsonl") {
		if len(r.Input.Tests) == 0 {
			continue
		}
		schemas++
		v, err := strictjson.Parse(r.Input.Schema)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		s, err := Compile(v)
		if err != nil {
			refused++ // such a tool is hidden, with this reason
			if why := err.Error(); !strings.Contains(why, "leaves the schema") && !strings.Contains(why, "nested $id") {
				t.Errorf("%s, %s: %v", r.ID, r.Why, err)
			}
			continue
		}
		for _, c := range r.Input.Tests {
			faults := s.Check(c.Data)
			switch {
			case (len(faults) == 0) == c.Valid:
				agree++
			case c.Valid:
				t.Errorf("%s, %s: %s is refused: %v", r.ID, r.Why, c.Description, faults)
			default:
				why := notEnforced(string(r.Input.Schema))
				if left[why]++; why == "" {
					t.Errorf("%s, %s: %s is taken", r.ID, r.Why, c.Description)
				}
			}
		}
	}
	t.Logf("%d schemas, %d with references to elsewhere; %d values agree; left to the server: %v", schemas, refused, agree,
		left)
	if schemas < corpus.Least(t, 0, 348) || refused > 41 || agree < corpus.Least(t, 0, 1126) {
		t.Error("fewer are judged than before")
	}
}

// notEnforced returns the keyword of a schema that waldo leaves to the server.
func notEnforced(schema string) string {
	for _, k := range []string{"format", "unevaluatedItems", "unevaluatedProperties"} {
		if strings.Contains(schema, `"`+k+`"`) {
			return k
		}
	}
	if strings.Contains(schema, `"^\\c`) {
		return "a pattern that RE2 cannot express"
	}
	return ""
}

// Every check ends. Of a schema and its negation one accepts a value, and only one if all of the schema is enforced.
func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"a":{"a":1}}`)
	f.Add(`{"$ref":"#"}`, `1`)
	f.Add(`{"if":{"format":"date"},"then":{"not":{"pattern":"(?=x)"}},"oneOf":[{"format":"a"},{"minLength":2}]}`, `"x"`)
	f.Add(`{"uniqueItems":true,"contains":{"const":1}}`, `[1,1]`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		sv, err := strictjson.Parse([]byte(schema))
		if err != nil {
			return
		}
		var v any
		if json.Unmarshal([]byte(value), &v) != nil {
			return
		}
		s, err := Compile(sv)
		if err != nil {
			return
		}
		c := &check{}
		c.value(s.root, v, "", 0)
		valid := !c.failed
		negated, err := strictjson.Parse([]byte(`{"not":` + schema + `}`))
		if err != nil || strings.Contains(schema, "#") {
			return // a reference to the whole means another whole now
		}
		n, err := Compile(negated)
		if err != nil || c.broke {
			return
		}
		other := &check{}
		other.value(n.root, v, "", 0)
		if !other.broke && (valid == !other.failed && !c.unsure || !valid && other.failed) {
			t.Errorf("%s accepts %s: %v; its negation: %v", schema, value, valid, !other.failed)
		}
	})
}
