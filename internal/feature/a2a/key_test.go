package a2a

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestIdempotencyKey: two messages with one Idempotency-Key and the same arguments are one write, with one question. With
// other arguments the second is refused. The control has no key.
func TestIdempotencyKey(t *testing.T) {
	b := newBench(t, "")
	send := func(text string, headers ...string) (task Task) {
		_, body := b.do("POST", "/a2a/message:send", message("t.note", text), headers...)
		var r struct{ Task Task }
		if err := json.Unmarshal([]byte(body), &r); err != nil || r.Task.ID == "" {
			t.Fatalf("%v %s", err, body)
		}
		return r.Task
	}
	first := send("a", "Idempotency-Key", "k1")
	b.answer(true)
	b.until(first.ID, Completed)
	again := send("a", "Idempotency-Key", "k1")
	if again.ID == first.ID || again.Status.State != Completed || again.Metadata["waldo/replayed"] != true || b.noted.Load() != 1 {
		t.Errorf("%s %v, %d notes", again.Status.State, again.Metadata, b.noted.Load())
	}
	if other := send("b", "Idempotency-Key", "k1"); other.Status.State != Rejected || !strings.Contains(said(other), "idempotency.conflict") {
		t.Errorf("%s %s", other.Status.State, said(other))
	}
	control := send("a")
	if control.Status.State != InputRequired {
		t.Errorf("control: %s", control.Status.State)
	}
	on := strings.Replace(message("t.note", "a"), `"role"`, `"taskId":"`+control.ID+`","role"`, 1)
	if _, body := b.do("POST", "/a2a/message:send", on, "Idempotency-Key", "k2"); !strings.Contains(body, "began with another Idempotency-Key") {
		t.Errorf("a key for a task that has none: %s", body)
	}
	if _, body := b.do("POST", "/a2a/message:send", on); strings.Contains(body, "Idempotency-Key") {
		t.Errorf("control: %s", body)
	}
}
