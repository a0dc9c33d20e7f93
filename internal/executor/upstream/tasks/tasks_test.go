package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

func value(t testing.TB, s string) strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// follow follows a task of a server that gives these states one after the other; "end" ends the call.
func follow(t *testing.T, states ...string) (result string, heard []string, err error) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	ask := func(_ context.Context, method string, params map[string]any) (strictjson.Value, error) {
		b, _ := json.Marshal(params)
		heard = append(heard, method+" "+string(b))
		if method != "tasks/get" {
			return value(t, `{"resultType":"complete"}`), nil
		}
		s := states[0]
		if len(states) > 1 {
			states = states[1:]
		}
		if s == "end" {
			end()
			s = `"status":"working"`
		}
		if !strings.Contains(s, "taskId") {
			s += `,"taskId":"t"`
		}
		return value(t, `{`+s+`,"pollIntervalMs":1}`), nil
	}
	v, err := Follow(ctx, ask, value(t, `{"resultType":"task","taskId":"t","status":"working","pollIntervalMs":1}`),
		func(wanted map[string]strictjson.Value) (map[string]strictjson.Value, error) {
			out := map[string]strictjson.Value{}
			for key, q := range wanted {
				if m, _ := q.Member("method").Text(); m == "refuse" {
					return nil, errors.New("no")
				}
				out[key] = value(t, `{"action":"accept"}`)
			}
			return out, nil
		})
	return string(v.Raw()), heard, err
}

// A task that a modern server made of a call ends with its result, its error, or its cancellation. Each question is
// answered once. A task whose call ends before it is cancelled.
func TestFollow(t *testing.T) {
	const working = `"status":"working"`
	for _, row := range []struct {
		why, want string // want is in the result or the error
		states    []string
		cancelled bool
	}{
		{"completed", `{"content":[]}`, []string{working, `"status":"completed","result":{"content":[]}`}, false},
		{"failed", "too bad", []string{`"status":"failed","error":{"code":-32603,"message":"too bad"}`}, false},
		{"failed without an error", "failed without an error", []string{`"status":"failed"`}, false},
		{"cancelled by the server", "the server cancelled its task", []string{`"status":"cancelled"`}, false},
		{"another task's", "it speaks of another task", []string{`"taskId":"x","status":"completed","result":{}`}, true},
		{"an unknown state", "no known state", []string{`"status":"dreaming"`}, true},
		{"the call ends", "context canceled", []string{working, "end", working}, true},
		{"a refused question", "no", []string{`"status":"input_required","inputRequests":{"a":{"method":"refuse"}}`}, true},
	} {
		result, heard, err := follow(t, row.states...)
		got := result
		if err != nil {
			got += err.Error()
		}
		last := heard[len(heard)-1]
		if !strings.Contains(got, row.want) || (last == `tasks/cancel {"taskId":"t"}`) != row.cancelled {
			t.Errorf("%s: %q, last heard %s", row.why, got, last)
		}
	}
	asks := `"status":"input_required","inputRequests":{"a":{"method":"x"}}`
	_, heard, err := follow(t, asks, asks,
		`"status":"input_required","inputRequests":{"a":{"method":"x"},"b":{"method":"x"}}`,
		`"status":"completed","result":{}`)
	all := strings.Join(heard, "\n")
	if err != nil || strings.Count(all, "tasks/update") != 2 ||
		!strings.Contains(all, `{"inputResponses":{"b":{"action":"accept"}},"taskId":"t"}`) {
		t.Errorf("%v %s", err, all)
	}
}

// The client of a call can know that its server made a task of it.
func TestBecameTask(t *testing.T) {
	began := false
	ctx, cancel := context.WithTimeout(call.WithTask(context.Background(), func() { began = true }), time.Minute)
	defer cancel()
	ask := func(context.Context, string, map[string]any) (strictjson.Value, error) {
		return value(t, `{"taskId":"t","status":"completed","result":{}}`), nil
	}
	if _, err := Follow(ctx, ask, value(t, `{"taskId":"t","pollIntervalMs":1}`), nil); err != nil || !began {
		t.Errorf("%v %v", err, began)
	}
}
