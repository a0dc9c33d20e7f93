// Package admit bounds what calls use of this machine at a time: live sandboxes, processes of SQLite, and waldo's own
// memory. Each principal has a share.
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

	"waldo/internal/budget"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// The defaults of waldo.yaml. docs/sandboxes.md names them.
const (
	memoryPercent = 75
	perPrincipal  = 16
	roomWait      = 20 * time.Second
)

// Limits returns the bounds of live sandboxes.
func Limits(s contract.Sandboxes) budget.Limits {
	l := budget.Limits{
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

// Sandbox waits until a gate has room for a sandbox of a memory limit in bytes, or returns the reason for a refusal.
// Without patience it does not wait. The caller calls leave after the sandbox has ended.
func Sandbox(
	ctx context.Context, g *budget.Gate, whose call.Principal, memory int64, patience bool,
) (leave func(), against *call.Reason) {
	if !patience {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	leave, err := g.Enter(ctx, string(whose), memory)
	if err != nil {
		return nil, noSandbox(err)
	}
	return leave, nil
}

// noSandbox is the reason for a sandbox that was not admitted.
func noSandbox(err error) *call.Reason {
	var full *budget.Full
	text := "the limit of concurrent sandboxes is reached"
	if errors.As(err, &full) {
		switch full.Limit {
		case budget.Number:
			text = fmt.Sprintf("%d sandboxes of this principal run already, which is the most (sandboxes.per_principal); "+
				"none ended within %v", full.Count, full.Wait)
		case budget.Tenant:
			text = fmt.Sprintf("live sandboxes of this tenant may use %d MB, half of all, and use %d MB; none ended within %v",
				full.Most>>20, full.Used>>20, full.Wait)
		case budget.Memory:
			text = fmt.Sprintf("%d live sandboxes may use %d MB, and all may use %d MB together "+
				"(sandboxes.memory_percent); none ended within %v", full.Count, full.Used>>20, full.Most>>20, full.Wait)
		}
	}
	return &call.Reason{Code: "sandbox.busy", Text: text}
}

// The bounds of what waldo's own process makes of bytes that an agent chose. docs/sandboxes.md names them.
const (
	ownMemory  = 96 << 20 // of all principals
	ownShare   = 48 << 20 // of one
	ownWait    = time.Minute
	ownCalls   = 1 << 20
	processes  = 4   // that answer questions about SQLite files, of one principal
	processMem = 512 // megabytes of one
)

// Own returns the gate of waldo's own memory for tables, rows, previews and pieces of files.
func Own() *budget.Gate {
	return budget.New(budget.Limits{Memory: ownMemory, Share: ownShare, Each: ownCalls, Wait: ownWait})
}

// Messages returns the gate of waldo's own memory for long requests of code. It is apart from Own: a request holds its
// part while the call that it makes waits for one of Own.
func Messages() *budget.Gate {
	return budget.New(budget.Limits{Memory: ownMemory / 2, Share: ownShare / 2, Each: ownCalls, Wait: ownWait})
}

// NoMemory is the reason for a call that found no room in the gate of Own.
func NoMemory(err error) *call.Reason {
	text := "waldo's own memory for work on large files, answers and messages is in use; try again, or ask for less"
	var full *budget.Full
	if errors.As(err, &full) && full.Limit == budget.Share {
		text = fmt.Sprintf("other calls of this principal use its share of waldo's own memory (%d MB); wait for them, or ask "+
			"for less", full.Most>>20)
	}
	return &call.Reason{Code: "memory.busy", Text: text}
}

// Questions bounds the processes that answer questions about SQLite files: a few of each principal, and as sandboxes
// their memory.
type Questions struct {
	each      *budget.Gate
	sandboxes *budget.Gate
}

// NewQuestions returns the bound, by the gate of sandboxes.
func NewQuestions(sandboxes *budget.Gate) *Questions {
	return &Questions{sandboxes: sandboxes, each: budget.New(
		budget.Limits{Memory: math.MaxInt64, Each: processes, Wait: ownWait})}
}

// Enter waits for room for one process.
func (q *Questions) Enter(ctx context.Context, whose call.Principal) (leave func(), why *call.Reason) {
	if q == nil {
		q = &Questions{}
	}
	first, err := q.each.Enter(ctx, string(whose), 0)
	if err == nil {
		second, why := q.sandboxes.Enter(ctx, string(whose), processMem<<20)
		if why == nil {
			return func() { second(); first() }, nil
		}
		first()
		err = why
	}
	return nil, &call.Reason{Code: "sql.busy", Text: fmt.Sprintf("no process for this query was free in time: a principal has at "+
		"most %d at a time, and they count as sandboxes (sandboxes.memory_percent, per_principal)", processes)}
}
