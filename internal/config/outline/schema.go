package outline

import (
	"encoding/json"
	"maps"
)

// Schema returns the JSON Schema (draft 7) of waldo.yaml, made from its declarations. Keys and words that this build
// does not enforce are left out, so that an editor marks them.
func Schema(file Mapping) []byte {
	root := file.schema()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "waldo.yaml"
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("outline: the schema does not encode: " + err.Error()) // maps, lists and text always do
	}
	return append(b, '\n')
}

func (o Mapping) schema() map[string]any {
	props, required := map[string]any{}, []string{}
	out := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	for _, k := range o.Keys {
		s := k.schema()
		s["description"] = k.Doc
		if k.Absent != "" {
			s["description"] = k.Doc + " Default: " + k.Absent + "."
		}
		if k.Name == AnyPath {
			out["patternProperties"] = map[string]any{"^/": s}
			continue
		}
		props[k.Name] = s
		if k.Required {
			required = append(required, k.Name)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (k Key) schema() map[string]any {
	var either []map[string]any
	for _, s := range k.Shapes {
		either = append(either, s.whole())
	}
	if len(either) == 1 {
		return either[0]
	}
	return map[string]any{"anyOf": either}
}

// whole is the schema of a shape, with the list or the names around it.
func (s Shape) whole() map[string]any {
	one := maps.Clone(s.Schema)
	if s.Of != nil {
		one = s.Of().schema()
		if len(s.Words) > 0 {
			one = map[string]any{"anyOf": []any{one, map[string]any{"const": s.Words[0]}}}
		}
	}
	switch {
	case s.List:
		return Many(one)
	case s.Named:
		return MapOf(one)
	}
	return one
}

// Many is the schema of a list, of at least one item.
func Many(items any) map[string]any {
	return map[string]any{"type": "array", "items": items, "minItems": 1}
}

// MapOf is the schema of a mapping with any names.
func MapOf(values any) map[string]any {
	return map[string]any{"type": "object", "additionalProperties": values}
}
