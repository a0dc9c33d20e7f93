// Package runcode is the tool run_code: one name for the capabilities that run code, with the language as an argument.
// It has no contract of its own. A call of it becomes a call of run_python, run_javascript, run_typescript or
// run_shell before it enters the pipeline.
package runcode

import (
	"maps"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// Name is the name of the tool.
const Name = "run_code"

// languages are the capability of each language, and the argument of it that holds the code.
var languages = map[string]struct {
	capability call.Capability
	code       string
}{
	"": {"run_python", "code"}, "python": {"run_python", "code"}, "javascript": {"run_javascript", "code"},
	"typescript": {"run_typescript", "code"}, "shell": {"run_shell", "command"},
}

// Capabilities returns the capabilities that a call of run_code can become.
func Capabilities() []call.Capability {
	return []call.Capability{"run_python", "run_javascript", "run_typescript", "run_shell"}
}

// Input is the schema of its arguments. The capability that a call becomes checks the other arguments.
const Input = `{"type":"object","properties":{"code":{"type":"string"},` +
	`"language":{"enum":["python","javascript","typescript","shell"]}},"required":["code"]}`

// Description is its description for the model.
const Description = "Run code in a sandbox; in Python await servers.NAME.TOOL(...) calls tools."

// Misuse is the text about arguments that name no program.
const Misuse = "run_code needs code, and a language of python, javascript, typescript and shell"

// Call returns the capability and the arguments that a call of run_code means. It reports false if the arguments name
// no language or hold no code. Further arguments go on to the capability, whose schema judges them.
func Call(args map[string]strictjson.Value) (call.Capability, map[string]any, bool) {
	language, isText := args["language"].Text()
	if !isText && !args["language"].IsZero() {
		return "", nil, false
	}
	of, known := languages[language]
	if _, text := args["code"].Text(); !known || !text {
		return "", nil, false
	}
	inner := map[string]any{}
	for name, v := range maps.All(args) {
		if name != "language" && name != "code" {
			inner[name] = v
		}
	}
	inner[of.code] = args["code"]
	return of.capability, inner, true
}
