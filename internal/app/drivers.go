package app

import (
	"io"
	"log/slog"

	"waldo/internal/executor/upstream/outside"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/confined"
	"waldo/internal/sandbox/engine"
	"waldo/internal/sandbox/gvisor"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
)

// Child is for the start of main. It does not return in a process that waldo started as a part of itself.
func Child() {
	confined.Main()
	engine.Main()
	outside.Main()
}

// Drivers returns a driver for each isolation level, by the name that contracts use. progress shows the unpacking of
// gVisor; nil: nowhere.
func Drivers(state string, progress func(what string, bytes int64) io.WriteCloser) map[string]sandbox.Driver {
	return map[string]sandbox.Driver{
		"gvisor":    gvisor.New(gvisor.Options{State: state, MilliCPU: 1000, Progress: progress}),
		"namespace": namespace.New(namespace.Options{MilliCPU: 1000}),
		"confined":  confined.New(confined.Options{MilliCPU: 1000}),
		"engine": engine.New(engine.Options{State: state, Progress: progress, Within: []sandbox.Driver{
			namespace.New(namespace.Options{MilliCPU: 1000}), confined.New(confined.Options{MilliCPU: 1000}),
		}}),
	}
}

// spareSandboxes is the number of namespace sets that a long-running waldo creates ahead.
const spareSandboxes = 2

// strongSandboxes limits the prewarmed gVisor sandboxes: each runs a kernel of its own.
const strongSandboxes = 2

// enginePrograms limits the prewarmed processes of the level engine.
const enginePrograms = 4

// keepWarm wraps the drivers in pools of prewarmed sandboxes. A pool starts a kind of sandbox ahead after its first
// use. The pools close last, since sandboxes end in them.
func (h *App) keepWarm(most int) {
	if most <= 0 {
		return
	}
	h.Drivers["namespace"] = namespace.New(namespace.Options{MilliCPU: 1000, Prewarm: spareSandboxes})
	for level, n := range map[string]int{
		"namespace": most, "gvisor": min(most, strongSandboxes), "engine": min(most, enginePrograms),
	} {
		p := pool.New(h.Drivers[level], pool.Options{
			Most: n, Failed: func(err error) { slog.Warn("warm sandboxes", "level", level, "why", err) },
		})
		if r, ok := h.Drivers[level].(sandbox.Reacher); ok {
			h.Drivers[level] = reaching{p, r}
		} else {
			h.Drivers[level] = p
		}
		h.closers = append(h.closers, p.Close)
	}
}

// reaching is a pool whose sandboxes can be reached, as those of its driver.
type reaching struct {
	*pool.Driver
	sandbox.Reacher
}
