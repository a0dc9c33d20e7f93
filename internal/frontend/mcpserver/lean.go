package mcpserver

import (
	"encoding/json"
	"strings"

	"waldo/internal/frontend/runcode"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// The lean mode lists three tools for any number of tools behind them, so that the host's prompt grows by less than
// 250 tokens.
const callTool = "call_tool"

const leanInstructions = "Find tools with search_tools, then use call_tool; for many calls use run_code. " +
	"A denied call says why; one that waits for approval: repeat it later."

const leanTools = `[{"name":"search_tools","description":"Find tools by what they do.",` +
	`"inputSchema":{"type":"object","properties":{"query":{"type":"string"},"detail":{"enum":["name","basic","full"],` +
	`"description":"full shows arguments"},"limit":{"type":"integer"}},"required":["query"]}},{"name":"call_tool",` +
	`"description":"Call a tool that was found.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},` +
	`"arguments":{"type":"object"}},"required":["name"]}},{"name":"` + runcode.Name + `","description":"` +
	runcode.Description + `","inputSchema":` + runcode.Input + `}]`

// leanTasks are the same for a host that may ask for tasks: those that call another tool run as one.
var leanTasks = strings.NewReplacer(
	`{"name":"`+callTool+`",`, `{"name":"`+callTool+`","execution":{"taskSupport":"optional"},`,
	`{"name":"`+runcode.Name+`",`, `{"name":"`+runcode.Name+`","execution":{"taskSupport":"optional"},`,
).Replace(leanTools)

// lean answers tools/list in lean mode.
func lean(modern, tasks bool) map[string]any {
	result := map[string]any{"tools": json.RawMessage(leanTools)}
	if tasks {
		result["tools"] = json.RawMessage(leanTasks)
	}
	if modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	return result
}

// unwrap returns the call inside run_code, and inside call_tool in lean mode, or the error result. The inner call is
// then treated as any other call.
func unwrap(m jsonrpc.Message, lean bool) (inner jsonrpc.Message, no map[string]any) {
	name, _ := m.Param("name").Text()
	args, _ := m.Param("arguments").Members()
	var params map[string]any
	switch {
	case name == callTool && lean:
		of, ok := args["name"].Text()
		if !ok || of == callTool || of == runcode.Name {
			return m, toolError("call_tool needs the name of a tool that search_tools found")
		}
		params = map[string]any{"name": of}
		if a := quoteInside(args); !a.IsZero() {
			params["arguments"] = a
		}
	case name == runcode.Name:
		capability, inner, ok := runcode.Call(args)
		if !ok {
			return m, toolError(runcode.Misuse)
		}
		params = map[string]any{"name": capability, "arguments": inner}
	default: // search_tools, or a tool that was not shown and whose name is known all the same
		return m, nil
	}
	if meta := m.Param("_meta"); !meta.IsZero() {
		params["_meta"] = meta
	}
	b, err := json.Marshal(params)
	if err != nil {
		return m, toolError("the arguments do not fit the tool")
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		return m, toolError("the arguments do not fit the tool")
	}
	// m keeps its own parameters
	return jsonrpc.Message{ID: m.ID, Method: m.Method, Params: v, Size: m.Size, Weight: m.Weight}, nil
}
