package content

import (
	"fmt"

	"waldo/internal/detect/words"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Elicitation checks a form or an address that a server puts to a person. It sets the message, which says who asks.
func Elicitation(server, mode string, members map[string]strictjson.Value, params map[string]any) *call.Fault {
	fault := func(format string, a ...any) *call.Fault {
		return &call.Fault{Code: jsonrpc.CodeParams, Message: fmt.Sprintf(format, a...)}
	}
	message, _ := members["message"].Text()
	who := fmt.Sprintf("The server %q asks, not waldo: ", server)
	if mode != "url" {
		schema, _ := members["requestedSchema"].Members()
		fields, ok := schema["properties"].Members()
		if !ok {
			return fault("requestedSchema must be the schema of an object")
		}
		for name, field := range fields {
			f, _ := field.Members()
			title, _ := f["title"].Text()
			format, _ := f["format"].Text()
			if words.Asks(name) || words.Asks(title) || format == "password" { // MCP: forms MUST NOT ask for secrets
				return fault("a form must not ask for a secret, as the field %.50q does", name)
			}
		}
		params["message"] = who + message
		return nil
	}
	address, _ := members["url"].Text()
	if !Opens(address) {
		return fault("the address is not one that a person may be sent to: https, without a user")
	}
	params["message"] = who + message + "\nThe whole address is " + address
	return nil
}

// Declared returns the client capabilities that the operator allows and, for a call, that the host supports.
func Declared(asks contract.Asks, can call.Abilities, perCall bool) map[string]any {
	caps, modes := map[string]any{}, map[string]any{}
	if asks.Form && (!perCall || can.Form()) {
		modes["form"] = struct{}{}
	}
	if asks.URL && (!perCall || can.URL()) {
		modes["url"] = struct{}{}
	}
	if len(modes) > 0 {
		caps["elicitation"] = modes
	}
	if asks.Sampling && (!perCall || !can.Sampling.IsZero()) {
		sampling := map[string]any{}
		if m, _ := can.Sampling.Members(); !m["tools"].IsZero() {
			sampling["tools"] = struct{}{}
		}
		caps["sampling"] = sampling
	}
	if len(asks.Roots) > 0 || asks.HostRoots && (!perCall || !can.Roots.IsZero()) {
		caps["roots"] = struct{}{}
	}
	return caps
}
