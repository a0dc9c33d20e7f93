package bridge

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// suspending opens a bridge whose calls of a.ask wait for a human, and whose calls of a.slow take until the end.
func suspending(t *testing.T, place *call.Suspension) (*peer, chan bool) {
	t.Helper()
	slow := make(chan bool, 1)
	h := &fixture{tools: []string{"a.ask", "a.slow"}}
	c := h.pipeline()
	c.OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
		f := facts.New()
		f.SideEffect = facts.None
		if c.Capability == "a.slow" {
			slow <- true
			<-ctx.Done()
			return call.Result{Status: facts.Failed, Facts: f}, nil
		}
		if place != nil && !call.Suspends(ctx) {
			t.Error("the question ends with this process")
		}
		return call.Result{Status: facts.Waiting, IsError: true, ApprovalID: fmt.Sprint("a_", c.Args.Values()["n"]),
			Facts: f}, nil
	}
	br := New("", c, memory())
	ours, theirs := pipe(t)
	stop := br.Open(context.Background(), call.Call{}, ours, place)
	t.Cleanup(func() { stop() })
	return &peer{t, theirs, bufio.NewReaderSize(theirs, 1<<20), stop}, slow
}

func ask(n string) string {
	return `{"jsonrpc":"2.0","id":` + n + `,"method":"tools/call","params":{"name":"a.ask","arguments":{"n":"` + n + `"}}}`
}

const handOver = `{"jsonrpc":"2.0","id":"suspend","method":"waldo/suspend","params":{"image":"aW1hZ2U="}}`

// TestSuspend: a program all of whose calls wait is taken, with their questions.
func TestSuspend(t *testing.T) {
	place := &call.Suspension{}
	b, _ := suspending(t, place)
	for _, n := range []string{"1", "2"} {
		b.say(ask(n))
		if text := fmt.Sprint(b.hear()); !strings.Contains(text, "waldo/waiting") || !strings.Contains(text, "a_"+n) {
			t.Fatal(text)
		}
	}
	b.say(handOver)
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "result:map[]") {
		t.Fatal(text)
	}
	b.say(handOver) // once
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "no such method here") {
		t.Error(text)
	}
	if e := b.stop(); e != facts.None || string(place.Image) != "image" || strings.Join(place.Approvals,
		" ") != "a_1 a_2" {
		t.Errorf("%s %+v", e, place)
	}
}

// TestNotSuspended: a program with a call under way, without a waiting call, or without an image is not taken, and its
// waiting calls are answered.
func TestNotSuspended(t *testing.T) {
	for why, said := range map[string][]string{
		"a call is under way": {ask("1"),
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"a.slow"}}`, handOver},
		"no image":  {ask("1"), strings.Replace(handOver, "aW1hZ2U=", "", 1)},
		"no base64": {ask("1"), strings.Replace(handOver, "aW1hZ2U=", "*", 1)},
	} {
		place := &call.Suspension{}
		b, slow := suspending(t, place)
		b.say(said[0])
		b.hear()
		for _, line := range said[1:] {
			b.say(line)
			if strings.Contains(line, "a.slow") {
				<-slow
			}
		}
		text := fmt.Sprint(b.hear(), b.hear())
		if !strings.Contains(text, "the program is not suspended") || !strings.Contains(text,
			"waldo/status:waiting") || place.Image != nil {
			t.Errorf("%s: %s", why, text)
		}
	}
	b, _ := suspending(t, &call.Suspension{})
	b.say(handOver)
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "the program is not suspended") {
		t.Errorf("nothing waits: %s", text)
	}
	b, _ = suspending(t, nil)
	b.say(handOver)
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "no such method here") {
		t.Errorf("a program of another level: %s", text)
	}
	b.say(ask("1")) // the call is answered at once
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "waldo/status:waiting") {
		t.Errorf("a program of another level: %s", text)
	}
}

// TestStill: a program that stands still hears when all of its calls wait, and before one of them is answered.
func TestStill(t *testing.T) {
	heard := make(chan bool, 8)
	begun, go1, go2 := make(chan bool), make(chan bool), make(chan bool)
	h := &fixture{tools: []string{"a.ask", "a.slow"}}
	c := h.pipeline()
	c.OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
		if c.Capability == "a.slow" {
			close(begun)
			<-go1
		} else {
			over := call.Wait(ctx)
			<-go2
			over()
		}
		return call.Result{Status: facts.OK, Facts: facts.New()}, nil
	}
	br := New("", c, memory())
	ours, theirs := pipe(t)
	stop := br.Open(context.Background(), call.Call{}, ours, &call.Suspension{Still: func(b bool) { heard <- b }})
	t.Cleanup(func() { stop() })
	b := &peer{t, theirs, bufio.NewReaderSize(theirs, 1<<20), stop}
	b.say(strings.ReplaceAll(ask("7"), "a.ask", "a.slow"))
	<-begun
	b.say(ask("8"))
	select {
	case v := <-heard:
		t.Fatalf("told %t while a call is under way", v)
	case <-time.After(200 * time.Millisecond):
	}
	close(go1)
	b.hear()
	if !<-heard {
		t.Error("all calls wait, and it is told otherwise")
	}
	b.say(handOver)
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "no such method") {
		t.Errorf("a program that stands still was written down: %s", text)
	}
	close(go2)
	if <-heard {
		t.Error("a call is answered, and it stands still")
	}
	b.hear()
}

func resultOf(id, number, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"waldo/result","params":{"number":` + number + more + `}}`
}

// TestHeldResult: a program whose writes are held is taken while it waits for a result, and not for another call. It
// quotes the approvals alone that it waited for before it went on here.
func TestHeldResult(t *testing.T) {
	quoting := func(a string) string { return `,"waldo/approval_id":"` + a + `"` }
	h := &fixture{tools: []string{"a.ask"}}
	c := h.pipeline()
	c.OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
		if call.Suspends(ctx) {
			t.Error("a call whose program is not taken ends early")
		}
		return call.Result{Status: facts.Waiting, IsError: true, ApprovalID: "a_call"}, nil
	}
	br := New("", c, memory())
	place := &call.Suspension{Held: true, Approvals: []string{"a_mine"}}
	ours, theirs := pipe(t)
	stop := br.Open(context.Background(), call.Call{}, ours, place)
	t.Cleanup(func() { stop() })
	b := &peer{t, theirs, bufio.NewReaderSize(theirs, 1<<20), stop}
	for _, row := range []struct{ said, want string }{
		{ask("1"), "waldo/status:waiting"},
		{resultOf("2", "0", ""), "takes the number of a held call"},
		{resultOf("3", "1", quoting("a_other")), "takes the number of a held call"},
		{resultOf("4", "1", quoting("a_mine")), "method:waldo/waiting"},
		{resultOf("5", "2", ""), "method:waldo/waiting"},
		{handOver, "result:map[]"},
	} {
		b.say(row.said)
		if text := fmt.Sprint(b.hear()); !strings.Contains(text, row.want) {
			t.Errorf("%s: %s", row.said, text)
		}
	}
	if b.stop(); string(place.Image) != "image" || strings.Join(place.Approvals, " ") != "a_1a_mine a_2" {
		t.Errorf("%+v", place)
	}
}
