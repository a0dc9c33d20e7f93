package app

import (
	"slices"

	"waldo/internal/executor/direct"
	"waldo/internal/executor/sql"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// newDirect returns the executor of waldo's own tools that need no sandbox.
func (h *App) newDirect() direct.Executor {
	return direct.New(sql.Databases{Secret: h.secrets.Get}.Tools()...)
}

// ownTools returns the definitions of those tools that a contract gives. Where a server has the same name, its tools
// keep it: the contract's transport says which is meant.
func (h *App) ownTools() []call.Tool {
	return slices.DeleteFunc(h.direct.Tools(), func(t call.Tool) bool {
		k, ok := h.Policy.Lookup(t.Capability)
		return !ok || k.Transport != contract.Direct
	})
}
