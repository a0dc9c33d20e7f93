package codegen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"waldo/internal/protocol/jsonschema"
)

// instance is a value that a schema of the corpus allows or does not, as the argument "value" of a tool.
type instance struct {
	row                 row
	module, description string
	valid               bool
	data                any
}

// TestInstances gives the values of the corpus of schemas to the generated code of their schemas, as literals, and asks
// mypy and TypeScript about them. Types refuse no valid value, but for the reasons in allowedToRefuse. They take an
// invalid one where the type is anything, where only keywords forbid it that no type has, or for a reason in
// allowedToTake.
func TestInstances(t *testing.T) {
	modules, err := filepath.Abs("../../../../.cache/types")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "mypy")); err != nil {
		t.Skip("scripts/setup-types.sh installs mypy and TypeScript")
	}
	root, all, tools := writeInstances(t)
	python := problems(t, root, "PYTHONPATH="+modules+"/mypy/usr/lib/python3/dist-packages", "/usr/bin/python3", "-m", "mypy",
		"--config-file=", "--no-incremental", "--cache-dir=/dev/null", "--no-error-summary", "--hide-error-context",
		"values.py")
	script, err := filepath.Abs("testdata/lines.cjs")
	if err != nil {
		t.Fatal(err)
	}
	typescript := problems(t, root, "NODE_PATH="+modules+"/node_modules", "node", script, root)
	count, used := map[string]int{}, map[string]bool{}
	for i, one := range all {
		schema := compiled(t, one.row.Input.Schema)
		line := strconv.Itoa(i + 1)
		for language, refused := range map[string][]string{
			"python":     python["values.py:"+line],
			"typescript": slices.Concat(typescript["shapes.ts:"+line], typescript["literals.ts:"+line]),
		} {
			why := ""
			switch {
			case one.valid == (len(refused) == 0):
				why = "as expected"
			case one.valid:
				why = allowedToRefuse(one, refused)
				used[why] = true
			case tools[one.module]:
				why = "the type is anything"
			case schema == nil || len(schema.Check(one.data)) == 0:
				why = "no type has the keyword"
			default:
				if why = allowedToTake[language+" "+one.row.Why]; why == "" {
					why = allowedToTake[one.row.Why]
				}
				used[why] = true
			}
			if count[why]++; why == "" {
				t.Errorf("%s, %s, %s: %s: valid %v, refused %q\n%.400s\n%v", language, one.row.ID, one.row.Why, one.description,
					one.valid, refused, one.row.Input.Schema, one.data)
			}
		}
	}
	for why, n := range count {
		t.Logf("%5d %s", n, why)
	}
	for what, why := range allowedToTake {
		if !used[why] {
			t.Errorf("%s: %s: no value needs this", what, why)
		}
	}
	if len(tools) != 348 || count["as expected"] < 1800 || count["the type is anything"] > 650 {
		t.Errorf("%d schemas, %v", len(tools), count)
	}
}

const (
	fixedList  = "Python's lists have no length"
	pointer    = "a reference that is not a pointer within the schema is anything"
	undeclared = "a required field that is not declared"
	truth      = "Python's bool is an int"
)

// allowedToTake has the reason why types take invalid values of a row, by what the row is about.
var allowedToTake = map[string]string{
	"python items and subitems":                              fixedList,
	"typescript items and subitems":                          undeclared,
	"oneOf with required":                                    undeclared,
	"URN base URI with URN and JSON pointer ref":             pointer,
	"URN base URI with URN and anchor ref":                   pointer,
	"properties with boolean schema":                         "a field that may have no value is anything",
	"typescript multiple types can be specified in an array": "TypeScript has one type of numbers",
	"python multiple types can be specified in an array":     truth,
	"python relative pointer ref to object":                  truth,

	"A $dynamicRef to a $dynamicAnchor in the same schema resource behaves like a normal $ref to an $anchor": pointer,
	"A $dynamicRef to an $anchor in the same schema resource behaves like a normal $ref to an $anchor":       pointer,

	"python reference of a root arbitrary keyword ":                             truth,
	"python reference of a root arbitrary keyword with encoded ref":             truth,
	"python reference of an arbitrary keyword of a sub-schema":                  truth,
	"python reference of an arbitrary keyword of a sub-schema with encoded ref": truth,
}

// allowedToRefuse returns why types refuse a valid value, or "".
func allowedToRefuse(one instance, refused []string) string {
	_, object := one.data.(map[string]any)
	if !object && strings.Contains(string(one.row.Input.Schema), `"properties"`) && !strings.Contains(string(one.row.Input.Schema),
		`"type": "object"`) {
		return "properties without a type mean an object"
	}
	for _, message := range refused {
		if !strings.HasPrefix(message, "Extra key") && !strings.Contains(message, "may only specify known properties") &&
			!strings.Contains(message, "has no properties in common") {
			return ""
		}
	}
	return "a literal with a field that the schema does not name"
}

// writeInstances writes code for every schema, and a line for each value in each of three files. Of each tool it returns
// whether its argument can be anything.
func writeInstances(t *testing.T) (root string, all []instance, anyTyped map[string]bool) {
	root, anyTyped = t.TempDir(), map[string]bool{}
	var tools []Tool
	for _, r := range rows(t) {
		if len(r.Input.Tests) == 0 {
			continue
		}
		var schema any
		if err := json.Unmarshal(r.Input.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		input := parse(t, map[string]any{"type": "object", "required": []string{"value"},
			"properties": map[string]any{"value": moved(schema)}})
		name := fmt.Sprint("row", len(tools))
		tools = append(tools, Tool{Name: name, Input: input})
		params, _ := readParams(input)
		anyTyped[name] = params.fields[0].typ.kind == anything
		for _, one := range r.Input.Tests {
			all = append(all, instance{r, name, one.Description, one.Valid, one.Data})
		}
	}
	if len(tools) == 0 {
		t.Skip("schemas with values are in the whole corpora alone")
	}
	files, err := Generate(Server{Name: "rows", URL: "http://127.0.0.1:9"}, tools, Languages)
	if err != nil {
		t.Fatal(err)
	}
	var python, shapes, literals strings.Builder
	for i, one := range all {
		text, err := json.Marshal(one.data)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&python, "from servers.rows import %s; %[1]s.call_sync(\"\", {\"value\": %s})\n", one.module,
			pythonLiteral(one.data))
		module := fmt.Sprintf("import * as m%d from \"./servers/rows/%s.ts\"; ", i, one.module)
		fmt.Fprintf(&shapes, "%sdeclare const d%d: {\"value\": %s}; void m%[2]d.call(\"\", d%[2]d);\n", module, i, text)
		fmt.Fprintf(&literals, "%svoid m%d.call(\"\", {\"value\": %s});\n", module, i, text)
	}
	for name, b := range map[string]*strings.Builder{"values.py": &python, "shapes.ts": &shapes, "literals.ts": &literals} {
		files = append(files, File{Path: name, Text: []byte(b.String())})
	}
	for _, f := range files {
		at := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, all, anyTyped
}

// moved returns a schema whose references to its own root still mean it as the property "value" of another.
func moved(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if ref, ok := e.(string); ok && k == "$ref" && (ref == "#" || strings.HasPrefix(ref, "#/")) {
				e = "#/properties/value" + ref[1:]
			}
			out[k] = moved(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = moved(e)
		}
		return out
	}
	return v
}

// noType are the keywords that neither language's types have.
var noType = strings.Fields(`pattern format minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
	uniqueItems contains minContains maxContains not if then else dependencies dependentRequired dependentSchemas
	propertyNames minProperties maxProperties minItems maxItems unevaluatedItems unevaluatedProperties patternProperties`)

// compiled returns a schema without the keywords of noType, or nil if waldo has no such schema. A choice of exactly one
// is a choice, as in types.
func compiled(t *testing.T, schema json.RawMessage) *jsonschema.Schema {
	var v any
	if err := json.Unmarshal(schema, &v); err != nil {
		t.Fatal(err)
	}
	var cut func(v any)
	cut = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			_, rest := v["additionalProperties"].(map[string]any)
			if v["patternProperties"] != nil || v["properties"] != nil && rest {
				delete(v, "additionalProperties") // fields beside declared ones, or by pattern, can be anything
			}
			for _, k := range noType {
				delete(v, k)
			}
			if one, ok := v["oneOf"]; ok && v["anyOf"] == nil {
				v["anyOf"] = one
				delete(v, "oneOf")
			}
			for _, e := range v {
				cut(e)
			}
		case []any:
			for _, e := range v {
				cut(e)
			}
		}
	}
	cut(v)
	s, err := jsonschema.Compile(parse(t, v))
	if err != nil {
		return nil
	}
	return s
}

// problems runs a checker and returns its messages by file and line.
func problems(t *testing.T, dir, env, program string, args ...string) map[string][]string {
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	_ = c.Run() // its status says that there are problems
	found := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+\.\w+:\d+): (?:error: )?(.*)$`).FindAllStringSubmatch(out.String(), -1) {
		if !strings.HasPrefix(m[2], "note: ") {
			found[m[1]] = append(found[m[1]], m[2])
		}
	}
	if len(found) < 50 || stderr.Len() > 0 {
		t.Fatalf("%s: %d lines with problems\n%s%s", program, len(found), clip(out.String(), 2000), stderr.String())
	}
	return found
}

// pythonLiteral writes a JSON value as Python code.
func pythonLiteral(v any) string {
	switch v := v.(type) {
	case string:
		return pythonText(v)
	case float64:
		if v == math.Trunc(v) {
			return strconv.FormatFloat(v, 'f', 0, 64) // 1.0 is an integer in JSON Schema
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = pythonLiteral(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for k, e := range v {
			parts = append(parts, pythonText(k)+": "+pythonLiteral(e))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return pythonValue(v)
}
