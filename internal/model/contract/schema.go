package contract

import (
	"encoding/json"
	"slices"
	"strings"
)

// Schema returns the JSON Schema (draft 7) of waldo.yaml, made from the table of keys. Keys and
// words that this build does not enforce are left out, so that an editor marks them.
func Schema() []byte {
	root := scopeSchema(top)
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "waldo.yaml"
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("contract: the schema does not encode: " + err.Error()) // maps, lists and text always do
	}
	return append(b, '\n')
}

func scopeSchema(scope string) map[string]any {
	props, required := map[string]any{}, []string{}
	out := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	for _, k := range keys {
		if k.Scope != scope || k.By == "" {
			continue
		}
		s := keySchema(k)
		s["description"] = k.Doc
		if k.Default != "" {
			s["description"] = k.Doc + " Default: " + k.Default + "."
		}
		if k.Name == anyPath {
			out["patternProperties"] = map[string]any{"^/": s}
			continue
		}
		props[k.Name] = s
		if slices.Contains([]string{"rule.when", "retry.max", "rate_limit.calls", "rate_limit.per", "example.expect"}, scope+"."+k.Name) {
			required = append(required, k.Name)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func keySchema(k Key) map[string]any {
	var any []map[string]interface{}
	for _, t := range strings.Split(k.Type, "|") {
		any = append(any, typeSchema(k, t))
	}
	if len(any) == 1 {
		return any[0]
	}
	return map[string]interface{}{"anyOf": any}
}

func typeSchema(k Key, t string) map[string]any {
	text := map[string]any{"type": "string", "minLength": 1}
	reference := map[string]any{"type": "string", "pattern": "^((env|file|dotenv|age|keyring|vault|store):.+|[A-Za-z][A-Za-z0-9_.-]*)$"}
	many := func(items any) map[string]any {
		return map[string]any{"type": "array", "items": items, "minItems": 1}
	}
	named := func(values any) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": values}
	}
	if scope, ok := strings.CutPrefix(t, "list:"); ok {
		return many(scopeSchema(scope))
	}
	switch t {
	case "text":
		return text
	case "word":
		words := k.Words
		if k.Scope == inEntry && k.Name == "redact" {
			words = []string{"none"}
		}
		return map[string]any{"enum": words}
	case "int":
		return map[string]any{"type": "integer", "minimum": 1}
	case "bool":
		return map[string]any{"type": "boolean"}
	case "time":
		return map[string]any{"type": "string", "pattern": "^([0-9.]+(ms|s|m|h))+$"}
	case "age":
		return map[string]any{"type": "string", "pattern": "^[1-9][0-9]{0,4}[dh]$"}
	case "texts":
		return many(text)
	case "words":
		return many(map[string]any{"enum": k.Words})
	case "ref":
		return reference
	case "refs", "headers":
		return named(reference)
	case "pairs":
		return named(text)
	case "roles":
		return named(many(text))
	case "any":
		return map[string]any{}
	case "servers":
		return named(scopeSchema(inServer))
	case "places":
		return named(reference)
	case "named":
		return named(scopeSchema(inSecret))
	case "capabilities":
		return named(map[string]any{"anyOf": []any{scopeSchema(inEntry), map[string]any{"const": "deny"}}})
	}
	return scopeSchema(t)
}
