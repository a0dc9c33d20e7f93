package app

import (
	"slices"

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
	if c.Capability == "fetch" && k.Transport == contract.Direct {
		return fetch.Judge(c, k)
	}
	return 0, nil
}

// ownTools returns the definitions of those tools that a contract gives. A server's tools of the same
// name keep it if the contract's transport is mcp.
func (h *App) ownTools() []call.Tool {
	return slices.DeleteFunc(h.direct.Tools(), func(t call.Tool) bool {
		k, ok := h.Policy.Lookup(t.Capability)
		return !ok || k.Transport != contract.Direct
	})
}
