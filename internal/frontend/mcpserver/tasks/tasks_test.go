package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
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

func result(text string) map[string]any {
	return map[string]any{
		"content": []any{map[string]any{"type": "text", "text": text}}, "_meta": map[string]any{"waldo/call_id": "c_1"},
	}
}

var ann, bob = Owner{"os:1", "first"}, Owner{"os:2", "second"}

func make1(t testing.TB, s *Store, o Owner) *Task {
	t.Helper()
	task, err := s.Create(o, 0, 10, true, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// A task is there for the session of the principal that made it, and for no other.
func TestATaskBelongsToItsSession(t *testing.T) {
	s := New(Limits{}, nil)
	task := make1(t, s, ann)
	for _, o := range []Owner{bob, {ann.Principal, "other"}, {"os:2", ann.Session}} {
		if s.Get(o, task.ID) != nil {
			t.Errorf("%v has the task", o)
		}
		if page, _ := s.List(o, 0, 10); len(page) != 0 {
			t.Errorf("%v lists the task", o)
		}
	}
	if s.Get(ann, task.ID) != task || len(task.ID) != 28 {
		t.Errorf("control: %q", task.ID)
	}
	s.Drop("other")
	if s.Get(ann, task.ID) != task {
		t.Error("the end of another session dropped it")
	}
	s.Drop(ann.Session)
	if s.Get(ann, task.ID) != nil {
		t.Error("it outlives its session")
	}
}

// A flood of tasks ends at the limits. Only what the client has fetched makes room, and only among its own.
func TestAFloodOfTasks(t *testing.T) {
	s := New(Limits{All: 5, Each: 3, Bytes: 4000}, nil)
	first := make1(t, s, ann)
	make1(t, s, ann)
	make1(t, s, ann)
	if _, err := s.Create(ann, 0, 10, true, func() {}); !errors.Is(err, ErrEach) {
		t.Errorf("a fourth: %v", err)
	}
	first.Finish(result("end"), nil)
	if _, err := s.Create(ann, 0, 10, true, func() {}); !errors.Is(err, ErrEach) {
		t.Errorf("with a result that is not fetched: %v", err)
	}
	first.End()
	make1(t, s, ann)
	if s.Get(ann, first.ID) != nil {
		t.Error("the fetched one did not make room")
	}
	make1(t, s, bob)
	make1(t, s, bob)
	if _, err := s.Create(bob, 0, 10, true, func() {}); !errors.Is(err, ErrAll) {
		t.Errorf("a sixth of all: %v", err)
	}
	s.Drop(ann.Session)
	if _, err := s.Create(bob, 0, 1000, true, func() {}); !errors.Is(err, ErrBytes) {
		t.Errorf("more bytes than a quarter: %v", err)
	}
	s.Drop(bob.Session)
	if s.bytes != 0 || len(s.each) != 0 || len(s.tasks) != 0 {
		t.Errorf("%d bytes, %v, %d tasks remain counted", s.bytes, s.each, len(s.tasks))
	}
}

// A result beyond the limit is replaced by a text, and the facts of the call remain.
func TestALargeResult(t *testing.T) {
	s := New(Limits{Bytes: 4000}, nil)
	task := make1(t, s, ann)
	task.Finish(result(strings.Repeat("x", 5000)), nil)
	r, _, _ := task.End()
	b, _ := json.Marshal(r)
	if !strings.Contains(string(b), "exceeds what the tasks of this principal can hold") ||
		!strings.Contains(string(b), `"waldo/call_id":"c_1"`) || len(b) > 1000 {
		t.Errorf("%s", b)
	}
	if r["isError"] != true {
		t.Error("it reads as a success")
	}
}

// A client cannot extend the life of a task beyond the limit, and a task ends its call at the end of its life.
func TestTheLifeOfATask(t *testing.T) {
	for ttl, want := range map[string]int64{
		`{}`: 3600_000, `{"ttl":null}`: 3600_000, `{"ttl":60000}`: 60_000, `{"ttl":1e300}`: 3600_000, `{"ttl":0}`: 10_000,
		`{"ttl":99999999999999}`: 3600_000,
	} {
		wanted, ok := Wanted(value(t, ttl))
		s := New(Limits{}, nil)
		task, err := s.Create(ann, wanted, 0, true, func() {})
		if err != nil || !ok || task.View()["ttl"] != want {
			t.Errorf("%s: %v %v %v", ttl, ok, err, task.View())
		}
	}
	for _, bad := range []string{`[]`, `"x"`, `{"ttl":-1}`, `{"ttl":"60000"}`} {
		if _, ok := Wanted(value(t, bad)); ok {
			t.Errorf("%s is taken", bad)
		}
	}
	s := New(Limits{Life: 20 * time.Millisecond}, nil)
	cancelled := make(chan struct{})
	task, err := s.Create(ann, time.Hour, 0, true, func() { close(cancelled) })
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-cancelled:
	case <-time.After(time.Minute):
		t.Fatal("the call goes on")
	}
	if s.Get(ann, task.ID) != nil {
		t.Error("it is still there")
	}
	task.Finish(result("late"), nil)
	if _, _, ok := task.End(); ok || s.bytes != 0 {
		t.Error("its result is")
	}
}

// A cancelled task stays cancelled, even if its call returns later. The result gives the facts of the call.
func TestCancel(t *testing.T) {
	s, n := New(Limits{}, nil), 0
	task, _ := s.Create(ann, 0, 0, true, func() { n++ })
	if !task.Cancel() || task.Cancel() || n != 1 {
		t.Errorf("cancelled %d times", n)
	}
	task.Finish(result("whether it took effect is not known"), nil)
	if v := task.View(); v["status"] != Cancelled || !strings.Contains(v["statusMessage"].(string), "not known") {
		t.Errorf("%v", v)
	}
	other := make1(t, s, ann)
	other.Finish(result("done"), nil)
	if other.Cancel() || other.View()["status"] != Completed {
		t.Errorf("cancelled after its end: %v", other.View())
	}
	if r, _, ok := other.End(); !ok || r["content"] == nil {
		t.Error("and its result is lost")
	}
}

// Questions have keys of their own, are answered one by one, and no answer counts twice or before its question.
func TestQuestions(t *testing.T) {
	s := New(Limits{}, nil)
	task := make1(t, s, ann)
	task.Answer(map[string]strictjson.Value{"q1": value(t, `{"action":"accept"}`)}) // before it is asked
	ask := func(names ...string) <-chan map[string]strictjson.Value {
		asked, got := map[string]call.Question{}, make(chan map[string]strictjson.Value, 1)
		for _, n := range names {
			asked[n] = call.Question{Method: "elicitation/create", Params: value(t, `{"message":"`+n+`"}`)}
		}
		go func() {
			answers, _ := task.Ask(context.Background(), asked)
			got <- answers
		}()
		return got
	}
	wait := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			b, _ := json.Marshal(task.Detailed())
			if strings.Contains(string(b), want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s, not %s", b, want)
			}
		}
	}
	got := ask("a", "b")
	wait(`"inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"a"}},"q2":`)
	task.Answer(map[string]strictjson.Value{"q1": value(t, `7`), "q9": value(t, `{}`)})
	wait(`"q1":`)
	task.Answer(map[string]strictjson.Value{"q2": value(t, `{"action":"decline"}`)})
	task.Answer(map[string]strictjson.Value{"q2": value(t, `{"action":"accept"}`)})
	wait(`"inputRequests":{"q1":{`)
	task.Answer(map[string]strictjson.Value{"q1": value(t, `{"action":"accept"}`)})
	answers := <-got
	if string(answers["a"].Raw()) != `{"action":"accept"}` || string(answers["b"].Raw()) != `{"action":"decline"}` {
		t.Errorf("%v", answers)
	}
	wait(`"status":"working"`)
	ask("a")
	wait(`"inputRequests":{"q3":`)
	task.Cancel()
	task.Finish(result("cancelled"), nil)
	wait(`"status":"cancelled"`)
}

// A legacy client gets the questions while it waits for the result. A lost connection loses no question.
func TestDeliver(t *testing.T) {
	s := New(Limits{}, nil)
	task := make1(t, s, ann)
	end := make(chan error, 1)
	go func() {
		got, err := task.Ask(context.Background(), map[string]call.Question{"a": {Method: "x"}})
		if string(got["a"].Raw()) != `{"n":1}` {
			t.Errorf("%v %v", got, err)
		}
		_, err = task.Ask(context.Background(), map[string]call.Question{"b": {Method: "y"}, "c": {Method: "y"}})
		end <- err
		task.Finish(nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the end"))
	}()
	lost := errors.New("lost")
	if err := task.Deliver(context.Background(),
		func(context.Context, call.Question) (strictjson.Value, error) {
			return strictjson.Value{}, lost
		}); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	err := task.Deliver(context.Background(), func(_ context.Context, q call.Question) (strictjson.Value, error) {
		if q.Method == "x" {
			return value(t, `{"n":1}`), nil
		}
		return strictjson.Value{}, &call.Fault{Code: -1, Message: "no"}
	})
	if err != nil {
		t.Error(err)
	}
	if fault := (*call.Fault)(nil); !errors.As(<-end, &fault) {
		t.Error("the client's error is lost")
	}
	if _, fault, _ := task.End(); fault == nil || fault.Message != "the end" || task.View()["status"] != Failed {
		t.Errorf("%v %v", fault, task.View())
	}
}
