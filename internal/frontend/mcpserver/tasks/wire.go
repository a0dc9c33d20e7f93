package tasks

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"waldo/internal/protocol/strictjson"
)

// Wanted reads the member task of a request of 2025-11-25: the life that the client asks for; 0: it asks for none.
func Wanted(task strictjson.Value) (life time.Duration, ok bool) {
	members, ok := task.Members()
	ttl, has := members["ttl"]
	if !ok || !has || ttl.Kind() == 'n' {
		return 0, ok
	}
	var ms float64
	if ttl.Kind() != '0' || ttl.Decode(&ms) != nil || ms < 0 {
		return 0, false
	}
	return time.Duration(min(math.Ceil(ms), 1e12))*time.Millisecond + 1, true // 0 ms are wanted, too
}

// View is a task in the form of 2025-11-25.
func (t *Task) View() map[string]any {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	v := t.common()
	if t.status == Completed && t.bad {
		v["status"] = Failed // a result that is an error counts as a failure there
	}
	v["ttl"], v["pollInterval"] = t.life.Milliseconds(), pollEvery.Milliseconds()
	return v
}

// Created is the result of 2026-07-28 in place of that of the call.
func (t *Task) Created() map[string]any {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	v := t.modern()
	v["resultType"] = "task"
	return v
}

// Detailed is a task in the form of 2026-07-28, with its questions or its result.
func (t *Task) Detailed() map[string]any {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	v := t.modern()
	switch t.status {
	case InputRequired:
		asked := map[string]any{}
		for key, q := range t.questions {
			params := any(struct{}{})
			if !q.Params.IsZero() {
				params = q.Params
			}
			asked[key] = map[string]any{"method": q.Method, "params": params}
		}
		v["inputRequests"] = asked
	case Completed:
		v["result"] = t.result
	case Failed:
		v["error"] = t.fault
	}
	return v
}

func (t *Task) modern() map[string]any {
	v := t.common()
	v["ttlMs"], v["pollIntervalMs"] = t.life.Milliseconds(), pollEvery.Milliseconds()
	return v
}

func (t *Task) common() map[string]any {
	stamp := func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
	v := map[string]any{
		"taskId": t.ID, "status": t.status, "createdAt": stamp(t.created), "lastUpdatedAt": stamp(t.updated),
	}
	if t.message != "" {
		v["statusMessage"] = t.message
	}
	return v
}

// RelatedTo returns the object with a _meta that names the task, as messages that belong to a task of 2025-11-25 have.
// It does not change the object.
func (t *Task) RelatedTo(object map[string]any) map[string]any {
	out, meta := maps.Clone(object), map[string]any{}
	if out == nil {
		out = map[string]any{}
	}
	switch old := out["_meta"].(type) {
	case map[string]any:
		maps.Copy(meta, old)
	case strictjson.Value:
		members, _ := old.Members()
		for k, v := range members {
			meta[k] = v
		}
	}
	meta[Related] = map[string]any{"taskId": t.ID}
	out["_meta"] = meta
	return out
}

func sizeOf(result map[string]any) int64 {
	b, _ := json.Marshal(result) // results are made of what encodes
	return int64(len(b))
}

// tooLarge stands for a result that is not stored. It retains the facts of the call.
func tooLarge(result map[string]any, size int64) map[string]any {
	text := fmt.Sprintf("waldo: the call ended, but its result of %d bytes exceeds what the tasks of this principal can "+
		"hold, so it is lost. The facts in _meta say whether it took effect.", size)
	out := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": true}
	if meta := result["_meta"]; meta != nil {
		out["_meta"] = meta
	}
	return out
}

// maxBrief is how many bytes of a result a message quotes.
const maxBrief = 500

// brief is the last text of a result, where waldo says how the call ended.
func brief(result map[string]any) string {
	content, _ := result["content"].([]any)
	for i := len(content) - 1; i >= 0; i-- {
		block, _ := content[i].(map[string]any)
		if s, ok := block["text"].(string); ok && s != "" {
			if len(s) > maxBrief {
				s = strings.ToValidUTF8(s[:maxBrief], "") + " …"
			}
			return s
		}
	}
	return ""
}
