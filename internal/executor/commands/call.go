package commands

import (
	"path"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Tool is the definition of cli.
func Tool() call.Tool {
	return call.Define("cli", "Run a command",
		"Run one allowed program with a list of arguments. No shell: nothing is expanded, and there are no pipes. It starts in "+
			"/workspace of a fresh sandbox: no network, files in input and output, limits on time, memory and output.",
		`{"type":"object","properties":{"argv":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1000,`+
			`"description":"The program and its arguments, as in [\"git\",\"log\",\"-3\"]."},`+
			`"dir":{"type":"string","maxLength":1000,"description":"Where it starts, below /workspace: input has the operator's files."},`+
			`"stdin":{"type":"string","description":"Its standard input."}},"required":["argv"],"additionalProperties":false}`)
}

// arguments are those of a call of cli.
type arguments struct {
	Argv  []string `json:"argv"`
	Dir   string   `json:"dir"`
	Stdin *string  `json:"stdin"`
}

// Read judges the command of a call. Stdin is nil if absent.
func Read(allow []string, a call.Args) (c Command, stdin *strings.Reader, why *call.Reason) {
	var in arguments
	if a.Value().IsZero() || a.Value().Decode(&in) != nil {
		c, why = deny("args.invalid", "it takes argv, a list of texts, dir and stdin, texts")
		return c, nil, why
	}
	if in.Dir == "-" || !inside(in.Dir) || strings.ContainsRune(in.Dir, 0) {
		c, why = deny("argument.denied", "dir is a folder below /workspace, as in input")
		return c, nil, why
	}
	if c, why = Judge(allow, in.Argv, in.Stdin != nil); why != nil {
		return c, nil, why
	}
	if in.Dir != "" {
		c.Dir = path.Join("/workspace", strings.TrimPrefix(path.Clean(in.Dir), "/workspace"))
	}
	if in.Stdin != nil {
		stdin = strings.NewReader(*in.Stdin)
	}
	return c, stdin, nil
}

// Applies reports whether a contract is of commands: a sandboxed capability that is not one of waldo's own languages.
func Applies(name call.Capability, k contract.Contract) bool {
	if k.Transport != contract.SandboxedExec || name == call.Launch {
		return false
	}
	for _, own := range contract.BuiltIns() {
		if string(name) == own {
			return false
		}
	}
	return true
}

// Weigh is the verdict on a call for the policy: its danger, or 0 and why it is refused.
func Weigh(c call.Call, k contract.Contract) (danger int, why *call.Reason) {
	if !Applies(c.Capability, k) {
		return k.Danger, nil
	}
	command, _, why := Read(k.Programs, c.Args)
	if why != nil {
		return 0, why
	}
	return command.Danger, &call.Reason{Code: "command.danger", Text: command.Program + " with these arguments changes files " +
		"of its sandbox or runs code"}
}
