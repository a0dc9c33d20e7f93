package codegen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

func parse(t testing.TB, v any) strictjson.Value {
	t.Helper()
	b, ok := v.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	out, err := strictjson.Parse(b)
	if err != nil {
		t.Fatalf("%s: %v", clip(string(b), 200), err)
	}
	return out
}

// one is a server to generate, and the arguments that each of its tools is called with.
type one struct {
	server string
	tools  []Tool
}

type row struct {
	ID, Class, Expect, Keyword, Why string
	Input                           struct {
		Tests []struct {
			Data        any
			Valid       bool
			Description string
		}
		Names             []string
		Name, Text, Where string
		As                []string
		Schema            json.RawMessage
	}
}

func rows(t *testing.T) []row { return corpus.Rows[row](t, "codegen.jsonl") }

// hostile is a tool with a text in every place that a server can write.
func hostile(t *testing.T, name, text string) Tool {
	field := map[string]any{
		"type": "string", "description": text, "title": text, "pattern": text, "format": text, "default": text,
		"examples": []string{text},
	}
	return Tool{Name: name, Title: text, Description: text, Input: parse(t, map[string]any{
		"$id": text, "title": text, "description": text, "type": "object", "required": []string{text},
		"properties": map[string]any{text: field, "e": map[string]any{"enum": []string{text, "x"}},
			"c": map[string]any{"const": text},
			"r": map[string]any{"$ref": text}, "l": map[string]any{"$ref": "#/$defs/" + text}, "t": map[string]any{"type": text},
			"o": map[string]any{"properties": map[string]any{text: field}}},
		"$defs": map[string]any{text: map[string]any{"type": "object", "properties": map[string]any{text: field}}},
	}), Output: parse(t, map[string]any{
		"type": "object", "properties": map[string]any{text: field}, "required": []string{text},
	})}
}

// ofRows makes servers of the rows: one for all hostile texts and words, and one for each row of names.
func ofRows(t *testing.T) (all []one) {
	texts := one{server: "texts"}
	seen := map[string]bool{}
	for _, r := range rows(t) {
		in := r.Input
		switch {
		case r.Class == "collision":
			s := one{server: r.ID}
			for _, name := range in.Names {
				s.tools = append(s.tools, hostile(t, name, name))
			}
			all = append(all, s)
		case in.Text != "" || in.Name != "":
			text := in.Text + in.Name
			if !seen[text] {
				seen[text] = true
				texts.tools = append(texts.tools, hostile(t, text, text))
				all = append(all, one{server: text})
			}
		case in.Schema != nil:
			schema, err := strictjson.Parse(in.Schema)
			if err != nil {
				continue // no server of waldo has such a schema
			}
			texts.tools = append(texts.tools, Tool{Name: r.ID, Input: schema, Output: schema})
		}
	}
	for text := range map[string]bool{"\"\"\"\nimport os\nos.abort()\n\"\"\"": true, "*/ process.exit(3) /*": true,
		"\u2028process.exit(3)//": true,
		"\\\"\nraise SystemExit":  true, "\r\nraise SystemExit\r": true, "\x85x\x0cy\x1cz": true, "\U000e0041\u202e": true,
		"\\N{BULLET}": true, "\\": true, "`${process.exit(3)}`": true} {
		texts.tools = append(texts.tools, hostile(t, "x"+text, text))
	}
	return append(all, texts)
}

// ofServers makes servers of the recorded tools of real ones.
func ofServers(t *testing.T) (all []one) {
	for file, b := range corpus.Definitions(t) {
		var f struct {
			Name  string
			Tools []struct {
				Name, Title, Description  string
				InputSchema, OutputSchema json.RawMessage
			}
		}
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		s := one{server: f.Name}
		seen := map[string]bool{}
		for _, d := range f.Tools {
			if seen[d.Name] {
				t.Logf("%s: two tools are called %q", f.Name, d.Name)
				continue
			}
			seen[d.Name] = true
			tool := Tool{Name: d.Name, Title: d.Title, Description: d.Description}
			var err error
			if tool.Input, err = strictjson.Parse(d.InputSchema); err != nil && d.InputSchema != nil {
				t.Logf("%s %s: %v", f.Name, d.Name, err)
			}
			tool.Output, _ = strictjson.Parse(d.OutputSchema)
			s.tools = append(s.tools, tool)
		}
		all = append(all, s)
	}
	return all
}

type calls struct {
	Folder string `json:"folder"`
	Server string `json:"server"`
	Calls  []made `json:"calls"`
}

type made struct {
	Tool string         `json:"tool"`
	Args map[string]any `json:"args"`
}

// write generates all servers into a folder and returns it, and the manifest for the checkers.
func write(t *testing.T, all []one) (root, manifest string) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "out")
	var list []calls
	folders := map[string]bool{}
	for _, s := range all {
		if at := strings.ToLower(Folder(s.server)); folders[at] {
			continue // the command refuses to write over another server's files
		} else {
			folders[at] = true
		}
		files, err := Generate(Server{Name: s.server, URL: "http://127.0.0.1:9/" + s.server}, s.tools, Languages)
		if err != nil {
			t.Fatalf("%s: %v", s.server, err)
		}
		total := 0
		for _, f := range files {
			if err := Owned(s.server, f.Text); err != nil {
				t.Fatalf("%s: %v", f.Path, err)
			}
			total += len(f.Text)
			at := filepath.Join(root, filepath.FromSlash(f.Path))
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			h, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err) // two names are one file
			}
			if _, err := h.Write(f.Text); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c := calls{Folder: Folder(s.server), Server: s.server, Calls: []made{}}
		for _, tool := range s.tools {
			m := made{tool.Name, map[string]any{}}
			params, _ := readParams(tool.Input)
			for _, f := range params.fields {
				if f.name != "__proto__" { // JavaScript's own objects cannot spell it
					m.Args[f.name] = f.name
				}
			}
			c.Calls = append(c.Calls, m)
		}
		list = append(list, c)
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	manifest = filepath.Join(dir, "manifest.json")
	if err := os.WriteFile(manifest, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return root, manifest
}

// checked runs a checker in an empty folder, in which nothing may appear.
func checked(t *testing.T, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip("this machine has no ", program)
	}
	for i, a := range args {
		if abs, err := filepath.Abs(a); err == nil && strings.HasPrefix(a, "testdata") || strings.HasPrefix(a, "..") {
			args[i] = abs
		}
	}
	empty := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir, cmd.Env = empty, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, clip(stderr.String(), 3000))
	}
	var r struct {
		Files  int
		Faults []string
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range r.Faults {
		t.Error(clip(f, 600))
	}
	if left, _ := os.ReadDir(empty); len(left) > 0 {
		t.Errorf("text of a server was executed: %v", left)
	}
	if r.Files < 100 {
		t.Errorf("%d files were checked", r.Files)
	}
	t.Logf("%d files", r.Files)
}

const stripper = "../../../sandbox/guest/javascript/strip.min.js"

// TestGenerated parses, inspects, imports and calls what is generated of hostile rows and of real servers.
func TestGenerated(t *testing.T) {
	root, manifest := write(t, append(ofRows(t), ofServers(t)...))
	t.Run("python", func(t *testing.T) { checked(t, "python3", "-I", "testdata/check.py", root, manifest) })
	t.Run("typescript", func(t *testing.T) {
		checked(t, "node", "--no-warnings", "--experimental-vm-modules", "testdata/check.mjs", root, manifest, stripper)
	})
	t.Run("types", func(t *testing.T) {
		modules, err := filepath.Abs("../../../../.cache/types/node_modules")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(modules, "typescript")); err != nil {
			t.Skip("scripts/setup-types.sh installs TypeScript")
		}
		t.Setenv("NODE_PATH", modules)
		checked(t, "node", "testdata/types.cjs", root)
	})
	t.Run("mypy", func(t *testing.T) {
		packages, err := filepath.Abs("../../../../.cache/types/mypy/usr/lib/python3/dist-packages")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(packages); err != nil {
			t.Skip("scripts/setup-types.sh installs mypy")
		}
		c := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "mypy", "--strict", "--config-file=", "--no-incremental",
			"--cache-dir=/dev/null", "--disable-error-code=type-arg", "servers")
		c.Dir, c.Env = root, append(os.Environ(), "PYTHONPATH="+packages)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, clip(string(out), 3000))
		}
	})
}

// TestGeneratedTexts: the text of single schemas.
func TestGeneratedTexts(t *testing.T) {
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprint("v", i)
	}
	for _, r := range []struct{ why, schema, python, typescript string }{
		{"required and optional", `{"properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["b"]}`,
			`"b": int,`, `"a"?: string;`},
		{"null differs from missing", `{"properties":{"a":{"type":["string","null"]}}}`, `"a": Union[str, None]`,
			`"a"?: string | null;`},
		{"an enum", `{"properties":{"a":{"enum":["x",1,true,null]}}}`, `Union[None, Literal["x", 1, True]]`,
			`"x" | 1 | true | null`},
		{"a reference to itself", `{"$defs":{"n":{"type":"object","properties":{"c":{"type":"array",` +
			`"items":{"$ref":"#/$defs/n"}}}}},"properties":{"a":{"$ref":"#/$defs/n"}}}`,
			`"c": List["ParamsN"]`, `"c"?: Array<ParamsN>;`},
		{
			"references in a ring", `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},` +
				`"properties":{"x":{"$ref":"#/$defs/a"}}}`, `"x": Any`, `"x"?: unknown`,
		},
		{"a reference to elsewhere", `{"properties":{"x":{"$ref":"file:///etc/passwd"}}}`, `"x": Any`, `"x"?: unknown`},
		{
			"a tuple", `{"properties":{"x":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false,` +
				`"minItems":1}}}`, `List[Union[str, float]]`, `[(string), (number)?]`,
		},
		{"an open object", `{"properties":{"x":{"type":"object","additionalProperties":{"type":"integer"}}}}`,
			`Dict[str, int]`, `Record<string, number>`},
		{"a keyword and no identifier", `{"properties":{"class":{"type":"string"},"a-b":{"type":"string"}}}`, `"a-b": str`,
			`"class"?: string`},
		{"schemas that are words", `{"properties":{"x":true,"y":false}}`, `"y": Any`, `"x"?: unknown`},
	} {
		tools := []Tool{{Name: "t", Input: parse(t, []byte(r.schema))}}
		if got := pythonModule(tools[0]); !strings.Contains(got, r.python) {
			t.Errorf("%s: python lacks %s:\n%s", r.why, r.python, got)
		}
		if got := typescriptModule(tools[0]); !strings.Contains(got, r.typescript) {
			t.Errorf("%s: typescript lacks %s:\n%s", r.why, r.typescript, got)
		}
	}
	wide := pythonModule(Tool{
		Name: "t", Input: parse(t, map[string]any{"properties": map[string]any{"a": map[string]any{"enum": many}}}),
	})
	if !strings.Contains(wide, `"a": str,`) {
		t.Errorf("an enum of 2,000 values: %s", clip(wide, 500))
	}
}

// TestGeneratedIsBounded: schemas that multiply, and large texts, give small files.
func TestGeneratedIsBounded(t *testing.T) {
	defs := map[string]any{"n0": map[string]any{"type": "string"}}
	for i := 1; i < 100; i++ {
		ref := map[string]any{"$ref": fmt.Sprint("#/$defs/n", i-1)}
		obj := map[string]any{"type": "object", "properties": map[string]any{"a": ref, "b": ref}}
		defs[fmt.Sprint("n", i)] = map[string]any{"type": "array", "prefixItems": []any{ref, obj, ref, ref, ref}}
	}
	deep := strings.Repeat(`{"type":"array","items":`, 60) + "{}" + strings.Repeat("}", 60)
	props := map[string]any{}
	for i := range 2000 {
		props[fmt.Sprint("p", i)] = map[string]any{
			"type": "object", "properties": map[string]any{"x": map[string]any{"type": "string"}},
		}
	}
	for why, tool := range map[string]Tool{
		"references that multiply": {
			Name: "t", Input: parse(t, map[string]any{
				"$defs": defs, "properties": map[string]any{"a": map[string]any{"$ref": "#/$defs/n99"}},
			}),
		},
		"a deep array":          {Name: "t", Input: parse(t, []byte(`{"properties":{"a":`+deep+`}}`))},
		"2,000 objects":         {Name: "t", Input: parse(t, map[string]any{"properties": props})},
		"a description of 1 MB": {Name: "t", Description: strings.Repeat("d", 1<<20)},
	} {
		for _, text := range []string{pythonModule(tool), typescriptModule(tool)} {
			if len(text) > 300_000 {
				t.Errorf("%s: %d bytes", why, len(text))
			}
		}
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	tools := []Tool{{Name: "b"}, {Name: "a"}, {Name: "A"}}
	x, err := Generate(Server{Name: "s"}, tools, Languages)
	if err != nil {
		t.Fatal(err)
	}
	y, _ := Generate(Server{Name: "s"}, []Tool{tools[2], tools[0], tools[1]}, Languages)
	for i := range x {
		if x[i].Path != y[i].Path || !bytes.Equal(x[i].Text, y[i].Text) {
			t.Errorf("%s differs", x[i].Path)
		}
	}
	if _, err := Generate(Server{Name: "s"}, []Tool{{Name: "a"}, {Name: "a"}}, Languages); err == nil {
		t.Error("two tools of one name were taken")
	}
}

func TestOwned(t *testing.T) {
	files, err := Generate(Server{Name: "s"}, nil, Languages)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := Owned("s", append(f.Text, ' ')); !errors.Is(err, ErrChanged) {
			t.Errorf("%s, changed: %v", f.Path, err)
		}
	}
	if err := Owned("other", files[0].Text); !errors.Is(err, ErrChanged) {
		t.Errorf("a file of another server: %v", err)
	}
	if err := Owned("s", []byte("import os\n")); !errors.Is(err, ErrForeign) {
		t.Errorf("a foreign file: %v", err)
	}
}

// TestModuleNames: each tool has a file of its own, under names that no language, index or file system takes.
func TestModuleNames(t *testing.T) {
	wire := []string{
		"", " ", "A", "a", "Get_user", "getUser", "get_user", "get user", "con", "NUL", "index", "__init__", "class", "then",
		"load", "TOOLS", "_client", "1st", "..", "../x", "取得", "привет", strings.Repeat("x", 300), "a_" + digest("A")[:8],
		"a_" + digest("a")[:8],
	}
	seen := map[string]string{}
	for i, m := range moduleNames(wire) {
		if other, ok := seen[strings.ToLower(m)]; ok {
			t.Errorf("%q and %q are both %s", wire[i], other, m)
		}
		seen[strings.ToLower(m)] = wire[i]
		if reserved[strings.ToLower(m)] || m[0] == '_' || len(m) > 2*longest || strings.ContainsAny(m, "./ ") {
			t.Errorf("%q is %s", wire[i], m)
		}
	}
	if seen["getuser"] != "getUser" || seen["con_"] != "con" || seen["tool_1st"] != "1st" {
		t.Errorf("names changed without need: %v", seen)
	}
}

func pythonModule(t Tool) string { return writePython(t, shapeOf(t)) }

func typescriptModule(t Tool) string { return writeTypeScript(t, shapeOf(t)) }
