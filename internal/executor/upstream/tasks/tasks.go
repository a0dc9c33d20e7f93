// Package tasks carries out a call of a tool that is offered as a task alone (MCP 2025-11-25 basic/utilities/tasks).
// The task belongs to the one call that made it: its id never leaves waldo, and its result is the result of that
// call.
package tasks

import (
	"context"
	"time"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// How often a server is polled for a task's progress, regardless of its own wish, and how long a cancellation can
// take.
const (
	least  = 50 * time.Millisecond
	usual  = time.Second
	most   = 10 * time.Second
	cancel = 5 * time.Second
)

// maxID is how many bytes the id of a task may have.
const maxID = 1024

// Ask sends a request of the call and waits for its result.
type Ask func(ctx context.Context, method string, params map[string]any) (strictjson.Value, error)

// Required reports whether a tool can be called as a task alone, by its definition.
func Required(tool strictjson.Value) bool {
	support, _ := tool.Member("execution").Member("taskSupport").Text()
	return support == "required"
}

// Offered reports whether a server takes calls of tools as tasks, by its capabilities.
func Offered(capabilities strictjson.Value) bool {
	_, ok := capabilities.Member("tasks").Member("requests").Member("tools").Member("call").Members()
	return ok
}

// Call calls a tool as a task and returns the result of the tool. When ctx ends, the task is cancelled.
func Call(ctx context.Context, ask Ask, params map[string]any, ttl time.Duration) (strictjson.Value, error) {
	asked := map[string]any{"task": map[string]any{"ttl": ttl.Milliseconds()}}
	for k, v := range params {
		asked[k] = v
	}
	created, err := ask(ctx, "tools/call", asked)
	if err != nil {
		return strictjson.Value{}, err
	}
	task := created.Member("task")
	id, ok := task.Member("taskId").Text()
	if !ok || id == "" || len(id) > maxID {
		return strictjson.Value{}, &jsonrpc.MalformedResponse{Why: "it names no task"}
	}
	over := false
	defer func() {
		if !over && ctx.Err() != nil {
			end, stop := context.WithTimeout(context.WithoutCancel(ctx), cancel)
			defer stop()
			_, _ = ask(end, "tasks/cancel", map[string]any{"taskId": id})
		}
	}()
	for {
		if same, _ := task.Member("taskId").Text(); same != id {
			return strictjson.Value{}, &jsonrpc.MalformedResponse{Why: "it speaks of another task"}
		}
		switch status, _ := task.Member("status").Text(); status {
		case "completed", "failed", "cancelled", "input_required": // the server asks while its result is waited for
			v, err := ask(ctx, "tasks/result", map[string]any{"taskId": id})
			over = err == nil
			return v, err
		case "working":
		default:
			return strictjson.Value{}, &jsonrpc.MalformedResponse{Why: "its task is in no known state"}
		}
		select {
		case <-time.After(pause(task)):
		case <-ctx.Done():
			return strictjson.Value{}, context.Cause(ctx)
		}
		if task, err = ask(ctx, "tasks/get", map[string]any{"taskId": id}); err != nil {
			return strictjson.Value{}, err
		}
	}
}

func pause(task strictjson.Value) time.Duration {
	var wish float64
	if v := task.Member("pollInterval"); v.IsZero() || v.Decode(&wish) != nil || wish < 0 || wish > float64(most.Milliseconds()) {
		return usual
	}
	return max(least, time.Duration(wish)*time.Millisecond)
}
