package cli

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/protocol/strictjson"
)

// Capability returns the capability of a name, also of the form that hosts see.
func Capability(p *policy.Policy, name string) (call.Capability, error) {
	cap := call.Capability(name)
	if p.Visible(cap) {
		return cap, nil
	}
	if contract.ByTheGateway(name) {
		return cap, exitcode.Mistake("waldo tools searches, waldo call and waldo run do the rest",
			"%s is a tool of the gateway, for agent hosts: it needs no contract, and this command cannot call it", name)
	}
	if dotted := call.Capability(strings.ReplaceAll(name, "__", ".")); p.Visible(dotted) {
		return dotted, nil
	}
	return cap, nil
}

// Meant returns the hint for a name that no tool has although one of waldo's own has a similar one; empty: no hint.
func Meant(name string) string {
	if slices.Contains(contract.Own(), name) {
		return ""
	}
	return display.Meant(name, contract.Own())
}

// Parse reads k=v pairs, or one JSON object from standard input.
func Parse(in io.Reader, args []string) (call.Args, error) {
	if len(args) == 1 && args[0] == "-" {
		b, err := io.ReadAll(io.LimitReader(in, call.MaxArgs+1))
		if err != nil {
			return call.Args{}, err
		}
		a, err := call.ParseArgs(b)
		if err != nil {
			return a, exitcode.Mistake("give one JSON object", "%v", err)
		}
		return a, nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, kv := range args {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return call.Args{}, exitcode.Mistake("as in id=17 or title='Call back'; - reads one JSON object from standard input", "%q is not k=v", kv)
		}
		if !json.Valid([]byte(v)) {
			quoted, err := json.Marshal(v)
			if err != nil {
				return call.Args{}, err
			}
			v = string(quoted)
		}
		name, err := json.Marshal(k)
		if err != nil {
			return call.Args{}, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(name)
		b.WriteString(":" + v)
	}
	b.WriteByte('}')
	a, err := call.ParseArgs([]byte(b.String()))
	if err != nil {
		return a, exitcode.Mistake("each name once", "%v", err)
	}
	return a, nil
}

// Typed returns the arguments that k=v pairs mean for a tool: a value that its schema has as text is the text as it
// was typed. a are the same pairs as Parse reads them.
func Typed(args []string, a call.Args, input strictjson.Value) call.Args {
	if len(args) == 1 && args[0] == "-" || input.IsZero() {
		return a
	}
	properties := input.Member("properties")
	all := map[string]any{}
	members, _ := a.Value().Members()
	for name, v := range members {
		all[name] = v
	}
	for _, kv := range args {
		k, v, _ := strings.Cut(kv, "=")
		if kind, _ := properties.Member(k).Member("type").Text(); kind == "string" && !strings.HasPrefix(v, `"`) {
			all[k] = v
		}
	}
	typed, err := call.ArgsOf(all)
	if err != nil {
		return a
	}
	return typed
}
