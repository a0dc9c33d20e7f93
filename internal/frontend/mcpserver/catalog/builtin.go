package catalog

import (
	"strings"

	"waldo/internal/frontend/runcode"
	"waldo/internal/model/call"
)

// SearchTools is the name of the tool that searches this list. The server answers it itself: it shows only tools of
// tools/list, so it needs no contract.
const SearchTools = "search_tools"

const inSandbox = " It runs in a fresh sandbox: no network, no secrets, /workspace/output is saved, limits on time, " +
	"memory and output. Returns stdout, stderr and resource use."

// Builtins returns the tools of waldo's own that run code, each answered by the runner.
func Builtins() []call.Tool {
	const less = `"timeout_s":{"type":"number","exclusiveMinimum":0,"description":"Seconds that it may take: fewer than the ` +
		`operator allows, never more."}`
	code := func(what, more string) string {
		return `{"type":"object","properties":{` +
			`"code":{"type":"string","description":"` + what + `"},` +
			`"args":{"type":"array","items":{"type":"string"},"description":"Command-line arguments of the program."},` +
			`"files":{"type":"object","additionalProperties":{"anyOf":[{"type":"string"},{"type":"object",` +
			`"properties":{"base64":{"type":"string"}},"required":["base64"],"additionalProperties":false}]},` +
			`"description":"Files to find in /workspace/input, by name: text, or {base64}."},` + less + more + `},` +
			`"required":["code"],"additionalProperties":false}`
	}
	// A suspended program goes on by its id, in place of code.
	program := strings.Replace(code("The program. Top-level await works; console.log what you want to see.",
		`,"resume":{"type":"string","description":"In place of code: the id of a suspended program whose calls a human has `+
			`answered. It goes on from there."}`), `"required":["code"],`, "", 1) // the runner wants one of both
	return []call.Tool{
		call.Define(runcode.Name, "Run code", runcode.Description, runcode.Input),
		call.Define("run_python", "Run Python",
			"Run a Python program. `servers.NAME.TOOL(...)` calls the tools of this list and `search_tools(query)` finds them, "+
				"so that large results need not pass through the conversation."+inSandbox,
			code("The program. Top-level await works; print what you want to see.",
				`,"session":{"type":"string","description":"Keep variables under this name for later calls with it. Then: code `+
					`and timeout_s alone, no tools; a last expression, figures and tables come back."}`)),
		call.Define("run_javascript", "Run JavaScript",
			"Run a JavaScript program (an ES module). `servers.NAME.TOOL(...)` calls the tools of this list."+inSandbox,
			program),
		call.Define("run_typescript", "Run TypeScript",
			"Run a TypeScript program. Types are removed, not checked. `servers.NAME.TOOL(...)` calls the tools of this list."+
				inSandbox,
			program),
		call.Define("run_shell", "Run a shell command", "Run a command line with /bin/sh."+inSandbox,
			`{"type":"object","properties":{"command":{"type":"string","description":"The command line."},`+less+`},`+
				`"required":["command"],"additionalProperties":false}`),
		call.Define(ReadOutput, "Read a file of the workspace",
			"Read a file that a run has written to /workspace/output, or that it was given. Text comes as text, "+
				"a picture as an image.",
			`{"type":"object","properties":{"name":{"type":"string","description":"As in output/report.csv."},`+
				`"offset":{"type":"integer","minimum":0,"description":"Begin at this byte."},`+
				`"limit":{"type":"integer","minimum":1,"maximum":4194304,"description":"At most so many bytes."}},`+
				`"required":["name"],"additionalProperties":false}`),
	}
}

// ReadOutput is the name of the tool that reads a file of the session's workspace.
const ReadOutput = "read_output"

// SearchTool returns the definition of SearchTools.
func SearchTool() call.Tool {
	return call.Define(SearchTools, "Search tools",
		"Find tools by what they do, or one by its name. Use it before guessing a name.",
		`{"type":"object","properties":{`+
			`"query":{"type":"string","description":"Words that say what the tool should do."},`+
			`"detail":{"type":"string","enum":["name","basic","full"],"description":"name: names only; basic: with `+
			`descriptions (the default); full: with schemas."},"limit":{"type":"integer","minimum":1,"maximum":50,`+
			`"description":"How many tools at most: 10 by default, 3 with full."}},"required":["query"],`+
			`"additionalProperties":false}`)
}
