// Package admit bounds the live sandboxes of this machine: their memory, and how many each principal has.
package admit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox/admission"
)

// The defaults of waldo.yaml. docs/sandboxes.md names them.
const (
	memoryPercent = 75
	perPrincipal  = 16
	roomWait      = 20 * time.Second
)

// Limits returns the bounds of live sandboxes.
func Limits(s contract.Sandboxes) admission.Limits {
	l := admission.Limits{
		Memory: math.MaxInt64, Each: cmp.Or(s.PerPrincipal, perPrincipal), Wait: cmp.Or(s.Wait, roomWait),
	}
	if total := totalMemory("/proc/meminfo"); total > 0 {
		l.Memory = total / 100 * int64(cmp.Or(s.MemoryPercent, memoryPercent))
	}
	return l
}

// totalMemory returns the machine's memory in bytes; 0: it is unknown.
func totalMemory(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

// By returns the admission that a runner asks, by a gate.
func By(g *admission.Gate) func(context.Context, call.Principal, int64, bool) (func(), *call.Reason) {
	return func(ctx context.Context, whose call.Principal, memory int64, patience bool) (func(), *call.Reason) {
		if !patience {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		leave, err := g.Enter(ctx, string(whose), memory)
		var full *admission.Full
		switch {
		case err == nil:
			return leave, nil
		case errors.As(err, &full):
			return nil, &call.Reason{Code: "sandbox.busy", Text: full.Text}
		}
		return nil, &call.Reason{Code: "sandbox.busy", Text: "the limit of concurrent sandboxes is reached"}
	}
}
