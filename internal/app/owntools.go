package app

import (
	"slices"
	"strings"

	"waldo/internal/executor/commands"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/fetch"
	"waldo/internal/executor/files"
	"waldo/internal/executor/sql"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// newDirect returns the executor of waldo's own tools that need no sandbox.
func (h *App) newDirect() direct.Executor {
	fetcher := &fetch.Fetcher{Open: h.egresses().ForCall}
	return direct.New(slices.Concat(
		files.Tools(h.State),
		sql.Databases{Secret: h.secrets.Get}.Tools(),
		[]direct.Tool{fetcher.Tool()},
	)...)
}

// judgeOwn weighs the arguments of waldo's own tools.
func judgeOwn(c call.Call, k contract.Contract) (danger int, why *call.Reason) {
	switch {
	case k.Transport != contract.Direct:
		return commands.Weigh(c, k)
	case c.Capability == "fetch":
		return fetch.Judge(c, k)
	}
	return 0, files.Judge(c)
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
