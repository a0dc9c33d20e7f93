package mcpserver

import (
	"encoding/json"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// The lean mode lists three tools for any number of tools behind them, so that the host's prompt grows by less than
// 250 tokens.
const (
	callTool = "call_tool"
	runCode  = "run_code"
)

const leanInstructions = "Find tools with search_tools, then use call_tool; for many calls use run_code. A denied call says why; one that waits for approval: repeat it later."

const leanTools = `[{"name":"search_tools","description":"Find tools by what they do.","inputSchema":{"type":"object","properties":{"query":{"type":"string"},` +
	`"detail":{"enum":["name","basic","full"],"description":"full shows arguments"},"limit":{"type":"integer"}},"required":["query"]}},` +
	`{"name":"call_tool","description":"Call a tool that was found.","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}},"required":["name"]}},` +
	`{"name":"run_code","description":"Run code in a sandbox; in Python await servers.NAME.TOOL(...) calls tools.","inputSchema":{"type":"object","properties":` +
	`{"code":{"type":"string"},"language":{"enum":["python","javascript","typescript","shell"]}},"required":["code"]}}]`

// lean answers tools/list in lean mode.
func lean(modern bool) map[string]any {
	result := map[string]any{"tools": json.RawMessage(leanTools)}
	if modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	return result
}

// languages are what run_code runs, by the tool that does it and the argument that holds the code.
var languages = map[string][2]string{"": {"run_python", "code"}, "python": {"run_python", "code"}, "javascript": {"run_javascript", "code"},
	"typescript": {"run_typescript", "code"}, "shell": {"run_shell", "command"}}

// unwrap returns the call inside call_tool or run_code, or the error result. The inner call is then treated as any
// other call.
func unwrap(m jsonrpc.Message) (inner jsonrpc.Message, no map[string]any) {
	name, _ := m.Param("name").Text()
	args, _ := m.Param("arguments").Members()
	var params map[string]any
	switch name {
	case callTool:
		of, ok := args["name"].Text()
		if !ok || of == callTool || of == runCode {
			return m, toolError("call_tool needs the name of a tool that search_tools found")
		}
		params = map[string]any{"name": of}
		if a := args["arguments"]; !a.IsZero() {
			params["arguments"] = a
		}
	case runCode:
		language, _ := args["language"].Text()
		how, known := languages[language]
		if _, text := args["code"].Text(); !known || !text {
			return m, toolError("run_code needs code, and a language of python, javascript, typescript and shell")
		}
		params = map[string]any{"name": how[0], "arguments": map[string]any{how[1]: args["code"]}}
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
