package app

import (
	"slices"
	"strings"

	"waldo/internal/budget"
	"waldo/internal/core/redact"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/commands"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// Toolbox makes the tools that a feature brings: waldo's own, which need no sandbox.
type Toolbox func(Kit) []direct.Tool

// Kit is what a tool works with. With the zero Kit, only the definition of a tool and its Judge can be used.
type Kit struct {
	State     string                                 // the state directory, which no tool opens
	Machine   files.Machine                          // decides about the folders that contracts open
	Work      *budget.Gate                           // waldo's own memory for answers
	Questions *admit.Questions                       // processes that read for a tool
	Egress    *sandboxegress.Assembler               // of calls
	Redact    *redact.Redactor                       // what a model is not shown
	Secret    func(secret.Ref) (secret.Value, error) // of the configuration
}

// open makes the tools of all toolboxes.
func open(boxes []Toolbox, k Kit) direct.Executor {
	var all []direct.Tool
	for _, box := range boxes {
		all = append(all, box(k)...)
	}
	return direct.New(all...)
}

// opened is this machine as it decides about the folders that contracts open. The tools hide waldo's state themselves.
func (h *App) opened() files.Machine { return files.Here("").For(h.Config) }

// judge weighs the arguments of waldo's own tools.
func judge(own direct.Executor) func(call.Call, contract.Contract) (danger int, why *call.Reason) {
	return func(c call.Call, k contract.Contract) (int, *call.Reason) {
		if k.Transport == contract.Direct {
			return own.Judge(c, k)
		}
		return commands.Weigh(c, k)
	}
}

// ownTools returns the definitions of those tools that a contract gives. A server's tools of the same
// name keep it if the contract's transport is mcp.
func (h *App) ownTools() []call.Tool {
	is := func(t call.Tool, transport contract.Transport) bool {
		k, ok := h.Policy.Lookup(t.Capability)
		return ok && k.Transport == transport
	}
	tools := slices.DeleteFunc(h.direct.Tools(), func(t call.Tool) bool { return !is(t, contract.Direct) })
	if cli := commands.Tool(); is(cli, contract.SandboxedExec) {
		tools = append(tools, cli)
	}
	return tools
}

// commands finds the programs that contracts allow, with their digests.
func (h *App) commands() commands.Programs {
	var names []string
	for _, k := range h.Config.Contracts {
		for _, p := range k.Programs {
			names = append(names, strings.TrimSuffix(p, commands.AnyArguments))
		}
	}
	return commands.Find(names)
}
