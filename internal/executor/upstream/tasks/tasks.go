// Package tasks carries out a call that runs as a task of its server: of a tool that is offered as a task alone (MCP
// 2025-11-25 basic/utilities/tasks), or that a server of 2026-07-28 made a task of (io.modelcontextprotocol/tasks).
// The task belongs to the one call that made it: its id never leaves waldo, and its result is the result of that
// call.
package tasks

import (
	"context"
	"time"

	"waldo/internal/model/call"
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

// Extension is the name of tasks among the extensions of 2026-07-28.
const Extension = "io.modelcontextprotocol/tasks"

// Extended reports whether a modern server may make tasks of calls, by its capabilities.
func Extended(capabilities strictjson.Value) bool {
	_, ok := capabilities.Member("extensions").Member(Extension).Members()
	return ok
}

// Declare adds to the capabilities of a client that it takes tasks.
func Declare(capabilities map[string]any) map[string]any {
	capabilities["extensions"] = map[string]any{Extension: struct{}{}}
	return capabilities
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
	id, err := idOf(task, "")
	if err != nil {
		return strictjson.Value{}, err
	}
	call.BecameTask(ctx)
	over := false
	defer func() {
		if !over && ctx.Err() != nil {
			abandon(ctx, ask, id)
		}
	}()
	for {
		if _, err := idOf(task, id); err != nil {
			return strictjson.Value{}, err
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
		if task, err = look(ctx, ask, id, pause(task.Member("pollInterval"))); err != nil {
			return strictjson.Value{}, err
		}
	}
}

// Answer answers what a task's server asks of the client, by the names of the questions.
type Answer func(wanted map[string]strictjson.Value) (map[string]strictjson.Value, error)

// Follow waits for the end of a task that a modern server made of a call, and returns the result of the tool. When ctx
// ends, or answer fails, the task is cancelled.
func Follow(ctx context.Context, ask Ask, task strictjson.Value, answer Answer) (result strictjson.Value, err error) {
	id, err := idOf(task, "")
	if err != nil {
		return result, err
	}
	call.BecameTask(ctx)
	over := false
	defer func() {
		if !over {
			abandon(ctx, ask, id)
		}
	}()
	answered := map[string]bool{}
	for {
		if task, err = look(ctx, ask, id, pause(task.Member("pollIntervalMs"))); err != nil {
			return result, err
		}
		if _, err = idOf(task, id); err != nil {
			return result, err
		}
		switch status, _ := task.Member("status").Text(); status {
		case "working":
		case "input_required":
			wanted, _ := task.Member("inputRequests").Members()
			for key := range wanted {
				if answered[key] { // the server has not seen the answer yet
					delete(wanted, key)
				}
			}
			if len(wanted) == 0 {
				continue
			}
			answers, err := answer(wanted)
			if err != nil {
				return result, err
			}
			if _, err := ask(ctx, "tasks/update", map[string]any{"taskId": id, "inputResponses": answers}); err != nil {
				return result, err
			}
			for key := range wanted {
				answered[key] = true
			}
		case "completed":
			over = true
			return task.Member("result"), nil
		case "failed":
			over = true
			return result, faultOf(task.Member("error"))
		case "cancelled":
			over = true
			return result, jsonrpc.Errorf(jsonrpc.CodeInternal, "the server cancelled its task")
		default:
			return result, &jsonrpc.MalformedResponse{Why: "its task is in no known state"}
		}
	}
}

// faultOf reads the error of a failed task.
func faultOf(v strictjson.Value) error {
	e := &jsonrpc.Error{Data: v.Member("data")}
	message, ok := v.Member("message").Text()
	if !ok || v.Member("code").Decode(&e.Code) != nil {
		return &jsonrpc.MalformedResponse{Why: "its task failed without an error"}
	}
	e.Message = message
	return e
}

// idOf returns the id of a task, which must be the same as before, unless that is empty.
func idOf(task strictjson.Value, before string) (string, error) {
	id, ok := task.Member("taskId").Text()
	switch {
	case !ok || id == "" || len(id) > maxID:
		return "", &jsonrpc.MalformedResponse{Why: "it names no task"}
	case before != "" && id != before:
		return "", &jsonrpc.MalformedResponse{Why: "it speaks of another task"}
	}
	return id, nil
}

// look asks for the state of a task, after a pause.
func look(ctx context.Context, ask Ask, id string, pause time.Duration) (strictjson.Value, error) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return strictjson.Value{}, context.Cause(ctx)
	}
	return ask(ctx, "tasks/get", map[string]any{"taskId": id})
}

// abandon cancels a task whose call is over.
func abandon(ctx context.Context, ask Ask, id string) {
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), cancel)
	defer stop()
	_, _ = ask(end, "tasks/cancel", map[string]any{"taskId": id})
}

func pause(interval strictjson.Value) time.Duration {
	var wish float64
	if v := interval; v.IsZero() || v.Decode(&wish) != nil || wish < 0 || wish > float64(most.Milliseconds()) {
		return usual
	}
	return max(least, time.Duration(wish)*time.Millisecond)
}
