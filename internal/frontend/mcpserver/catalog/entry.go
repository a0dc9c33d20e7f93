package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonschema"
	"waldo/internal/protocol/strictjson"
)

// maxText is how many bytes of a description are shown; the longest of 873 real ones has 2,781.
const maxText = 8000

// Limits on tool definitions: approximate bytes of memory that their parsed values take. The definitions of 23 real
// servers take 3 MiB together.
const (
	maxOf  = 16 << 20 // of one server
	maxAll = 64 << 20 // of all servers
)

// within returns the tools of one server, or none, with a problem for each, where they weigh more than is taken.
func (b *builder) within(server string, tools []call.Tool) []call.Tool {
	weight := 0
	for _, t := range tools {
		weight += len(t.Description) + strictjson.Weight(t.Input.Raw()) + strictjson.Weight(t.Output.Raw())
	}
	of, most := "the server's", maxOf
	if weight <= maxOf {
		if b.weight+weight <= maxAll {
			b.weight += weight
			return tools
		}
		of, weight, most = "with this server's, all servers'", b.weight+weight, maxAll
	}
	for _, t := range tools {
		t.Server = server
		b.problem(t, "tool.size", "%s definitions of tools take about %d MiB of memory: at most %d are taken", of,
			weight>>20, most>>20)
	}
	return nil
}

// shorten makes a wire name of at most 64 characters that ends in eight digits of the capability's
// own digest.
func shorten(wireName string, c call.Capability) string {
	tail := "_" + strictjson.Digest([]byte(c))[len("sha256:"):][:8]
	return wireName[:min(len(wireName), maxWire-len(tail))] + tail
}

// made caches the values derived from one definition, for as long as a server lists the same definition.
type made struct {
	of     call.Tool // as it came
	schema *jsonschema.Schema
	err    error // why the tool is not shown
	epoch  any
	shown  *Entry
}

// cache holds what was made, by server and capability.
type cache map[cacheKey]*made

type cacheKey struct {
	server     string
	capability call.Capability
}

// make completes a tool: text cleaned, and a schema of type object, as clients insist on one. It makes only what is
// another than in the last list.
func (b *builder) make(t call.Tool) *made {
	key := cacheKey{t.Server, t.Capability}
	m := b.was[key]
	if m == nil || m.epoch != b.epoch || !sameTool(m.of, t) {
		m = &made{of: t, epoch: b.epoch}
		if t, m.err = b.o.Texts.Hide(t); m.err == nil {
			m.schema, m.err = schemaOf(t)
		}
		if m.err == nil {
			m.shown, m.err = b.entry(t, m.schema)
		}
	}
	b.now[key] = m
	return m
}

// named returns the entry under its wire name. An entry that is in a list already does not change.
func (m *made) named(wire string) *Entry {
	if m.shown.Wire != wire {
		e := *m.shown
		e.Wire = wire
		m.shown = &e
	}
	return m.shown
}

// sameTool compares all that an entry is made of.
func sameTool(a, b call.Tool) bool {
	same := func(x, y strictjson.Value) bool { return bytes.Equal(x.Raw(), y.Raw()) }
	return a.Capability == b.Capability && a.Server == b.Server && a.Digest == b.Digest && a.Title == b.Title &&
		a.Description == b.Description && same(a.Input, b.Input) && same(a.Output, b.Output) &&
		same(a.Annotations, b.Annotations)
}

func sameTools(a, b []call.Tool) bool { return slices.EqualFunc(a, b, sameTool) }

// schemaOf compiles the schema of the arguments.
func schemaOf(t call.Tool) (*jsonschema.Schema, error) {
	compiled, err := jsonschema.Compile(t.Input)
	if err != nil {
		return nil, err
	}
	members, ok := t.Input.Members()
	if !ok {
		return nil, fmt.Errorf("the schema of the arguments is not an object")
	}
	if kind, has := members["type"]; has {
		if s, _ := kind.Text(); s != "object" {
			return nil, fmt.Errorf("the schema of the arguments is of another type than object")
		}
	}
	return compiled, nil
}

func (b *builder) entry(t call.Tool, schema *jsonschema.Schema) (e *Entry, err error) {
	if t.Title == "" { // where servers of older revisions have it
		t.Title, _ = t.Annotations.Member("title").Text()
	}
	under := b.o.Contracts.Of(t.Capability)
	if filled := under.Idempotency.Argument; filled != "" {
		if t.Input, err = optional(t.Input, filled); err == nil {
			schema, err = schemaOf(t)
		}
		if err != nil {
			return nil, err
		}
	}
	e = &Entry{Tool: t, check: schema}
	e.Title, e.Description = b.clean(t.Title), b.clean(t.Description)
	if e.Input, err = b.show(t.Input); err != nil {
		return nil, err
	}
	if !t.Output.IsZero() {
		if e.Output, err = b.show(t.Output); err != nil {
			return nil, err
		}
	}
	if under.Confirm && t.Capability != SearchTools {
		if err := e.confirmed(); err != nil {
			return nil, err
		}
	}
	e.terms = terms(e)
	return e, nil
}

// optional returns a schema of arguments in which one of them is not required.
func optional(schema strictjson.Value, name string) (strictjson.Value, error) {
	members, _ := schema.Members()
	input, required := map[string]any{}, []strictjson.Value{}
	for k, v := range members {
		input[k] = v
	}
	all, ok := members["required"].Elements()
	if !ok {
		return schema, nil
	}
	for _, v := range all {
		if text, _ := v.Text(); text != name {
			required = append(required, v)
		}
	}
	input["required"] = required
	v, err := call.ArgsOf(input)
	return v.Value(), err
}

// confirmed adds the argument that quotes the token of a preview: confirm, or waldo_confirm where the tool has its own.
func (e *Entry) confirmed() error {
	members, _ := e.Input.Members()
	properties, _ := members["properties"].Members()
	all := map[string]any{}
	for name, v := range properties {
		all[name] = v
	}
	e.Confirm = "confirm"
	if all[e.Confirm] != nil {
		e.Confirm = "waldo_confirm"
	}
	if all[e.Confirm] != nil {
		return fmt.Errorf("the tool has arguments confirm and waldo_confirm of its own, and its contract asks for confirm")
	}
	all[e.Confirm] = map[string]string{"type": "string", "description": "Leave this out at first: the answer is then a " +
		"preview, and names a token. The same call with that token here acts."}
	input := map[string]any{}
	for name, v := range members {
		input[name] = v
	}
	input["properties"] = all
	v, err := call.ArgsOf(input)
	e.Input = v.Value()
	return err
}

// clean passes text of waldo's own and of servers through the same filter.
func (b *builder) clean(s string) string {
	if s = b.o.Texts.Clean(s); len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + " …"
	}
	return s
}

// show cleans a schema for clients. It strips hidden text and comments, and every key that would make a client copy
// an argument into a header (MCP 2026-07-28 x-mcp-header).
func (b *builder) show(v strictjson.Value) (strictjson.Value, error) {
	var x any
	if err := decodeNumbers(v, &x); err != nil {
		return strictjson.Value{}, err
	}
	x = b.walk(x, false)
	if m, ok := x.(map[string]any); ok && m["type"] == nil {
		m["type"] = "object"
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Parse(out.Bytes())
}

// decodeNumbers decodes a value and keeps every digit of its numbers.
func decodeNumbers(v strictjson.Value, out any) error {
	d := json.NewDecoder(bytes.NewReader(v.Raw()))
	d.UseNumber()
	return d.Decode(out)
}

// named are the keywords whose members are names of properties, not keywords.
var named = map[string]bool{
	"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true,
}

// walk cleans a schema, or, inside names, a map of schemas.
func (b *builder) walk(x any, names bool) any {
	switch x := x.(type) {
	case map[string]any:
		for k, v := range x {
			text, isText := v.(string)
			switch {
			case names:
				x[k] = b.walk(v, false)
			case k == "x-mcp-header" || k == "$comment":
				delete(x, k)
			case isText && (k == "description" || k == "title"):
				x[k] = b.clean(text)
			case k == "enum" || k == "const" || k == "default" || k == "examples":
				// values, which the agent must be able to give back as they are
			default:
				x[k] = b.walk(v, named[k])
			}
		}
	case []any:
		for i := range x {
			x[i] = b.walk(x[i], false)
		}
	}
	return x
}
