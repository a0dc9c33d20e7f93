package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"waldo/internal/protocol/strictjson"
)

// sse is a stream of events that a test reads and breaks off.
type sse struct {
	t      *testing.T
	status int
	lines  *bufio.Scanner
	cut    context.CancelFunc
}

// stream makes a request and reads its answer event by event.
func (h *fixture) stream(method, body string, headers ...string) *sse {
	h.t.Helper()
	ctx, cut := context.WithTimeout(context.Background(), 2*time.Minute)
	r, err := http.NewRequestWithContext(ctx, method, h.url, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { cut(); res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 8<<20)
	return &sse{h.t.(*testing.T), res.StatusCode, lines, cut}
}

// next returns one event's id and data; both are empty at the end.
func (s *sse) next() (id, data string) {
	for s.lines.Scan() {
		line := s.lines.Text()
		switch {
		case line == "" && id+data != "":
			return id, data
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		}
	}
	return id, data
}

// all returns the data of the remaining events.
func (s *sse) all() (out []string) {
	for {
		id, data := s.next()
		if id+data == "" {
			return out
		}
		if data != "" {
			out = append(out, data)
		}
	}
}

const chatty = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s__chatty","arguments":{},` +
	`"_meta":{"progressToken":"p"}}}`

// A client that lost its connection within an answer gets the rest of it, each message once, in order. It gets only
// its own session's events, also after the call has ended.
func TestALostAnswerIsResumed(t *testing.T) {
	h := open(t, Limits{})
	mine, other := h.legacy(), h.legacy()
	theirs := h.legacy("Authorization", "Bearer two")
	s := h.stream("POST", fmt.Sprintf(chatty, 7), "Mcp-Session-Id", mine)
	start, data := s.next()
	if start == "" || data != "" {
		t.Fatalf("the first event is %q %q, and should name the place alone", start, data)
	}
	first, data := s.next()
	if !strings.Contains(data, `"progress":1`) || first == start {
		t.Fatalf("control: %q %q", first, data)
	}
	s.cut()
	for _, row := range []struct {
		why, session, token, last string
		status                    int
	}{
		{"another session of the same principal", other, "one", first, 400},
		{"another principal's session", theirs, "two", first, 400},
		{"another principal with this session's id", mine, "two", first, 404},
		{"an id that nobody gave", mine, "one", first[:len(first)-1] + "9", 400},
		{"a number written otherwise", mine, "one", strings.Replace(first, "-1-", "-01-", 1), 400},
		{"no id at all", mine, "one", "x", 400},
	} {
		if got := h.stream("GET", "", "Mcp-Session-Id", row.session, "Authorization", "Bearer "+row.token, "Last-Event-ID",
			row.last); got.status != row.status {
			t.Errorf("%s: status %d", row.why, got.status)
		}
	}
	for range 2 { // while it is made, and when it is done
		got := h.stream("GET", "", "Mcp-Session-Id", mine, "Last-Event-ID", first).all()
		if len(got) != 3 || !strings.Contains(got[0], `"progress":2`) || !strings.Contains(got[1], `"progress":3`) ||
			!strings.Contains(got[2], `"id":7,`) {
			t.Fatalf("resumed: %q", got)
		}
	}
	if got := h.stream("GET", "", "Mcp-Session-Id", mine, "Last-Event-ID", start).all(); len(got) != 4 {
		t.Errorf("from the start: %q", got)
	}
	if n := h.desk.count(); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

// A call that is silent for a second gets an event id all the same, so that the answer is found by a client that lost
// the connection before there was anything to say. A revision that knows no such event gets none.
func TestASilentCallHasAnEventIDSoon(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	begin := time.Now()
	s := h.stream("POST", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s__slow","arguments":{}}}`,
		"Mcp-Session-Id", id)
	place, data := s.next()
	if took := time.Since(begin); place == "" || data != "" || took > 10*time.Second {
		t.Fatalf("the first event is %q %q after %s", place, data, took)
	}
	s.cut()
	close(h.desk.release)
	if got := h.stream("GET", "", "Mcp-Session-Id", id, "Last-Event-ID", place).all(); len(got) != 1 ||
		!strings.Contains(got[0], `"id":9,`) {
		t.Errorf("resumed: %q", got)
	}
	if n := h.desk.count(); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

// Messages outside a request are resumed too, and are not mixed with the answers.
func TestALostStreamIsResumed(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	if _, _, list := h.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id",
		id); !strings.Contains(list, "s__echo") {
		t.Fatal(list)
	}
	s := h.stream("GET", "", "Mcp-Session-Id", id)
	place, _ := s.next()
	h.mu.Lock()
	h.list = h.list[:3]
	h.mu.Unlock()
	h.cat.Invalidate("s")
	if _, data := s.next(); !strings.Contains(data, "list_changed") {
		t.Fatalf("control: %q", data)
	}
	s.cut()
	if h.stream("POST", fmt.Sprintf(chatty, 8), "Mcp-Session-Id", id).all(); h.desk.count() != 1 {
		t.Fatal("the call was not made")
	}
	again := h.stream("GET", "", "Mcp-Session-Id", id, "Last-Event-ID", place)
	if _, data := again.next(); !strings.Contains(data, "list_changed") {
		t.Errorf("resumed: %q", data)
	}
	h.web.forget(h.web.find(id, "token:one"))
	if rest := again.all(); len(rest) != 0 {
		t.Errorf("another stream's messages: %q", rest)
	}
}

// In the modern era there is nothing to resume, and events have no ids.
func TestModernEventsHaveNoIds(t *testing.T) {
	h := open(t, Limits{})
	_, _, body := h.modern("tools/call", `"name":"s__chatty","arguments":{}`, "Mcp-Name", "s__chatty")
	if strings.Contains(body, "id: ") {
		t.Errorf("an id: %s", body)
	}
	if got := h.stream("GET", "", "MCP-Protocol-Version", "2026-07-28", "Last-Event-ID", "x-1-1"); got.status != 405 {
		t.Errorf("status %d", got.status)
	}
}

func trails(most, all int64) (*Server, *replayBuffer) {
	s := &Server{}
	s.o.Limits = Limits{Replay: most, ReplayAll: all}
	return s, s.newReplayBuffer()
}

// A replay holds no more than its bounds, alone and together with others, and lets go of all at the end.
func TestTrailsAreBounded(t *testing.T) {
	s, one := trails(10_000, 15_000)
	two, three := s.newReplayBuffer(), s.newReplayBuffer()
	for range 1000 {
		k := one.begin()
		one.add(k, make([]byte, 100))
		one.end(k, make([]byte, 100), nil)
		two.add(two.tracks[0], nil)
		if one.bytes > 10_000 || two.bytes > 10_000 || s.replay.Load() > 15_000 ||
			one.bytes+two.bytes+three.bytes != s.replay.Load() {
			t.Fatalf("%d and %d bytes, %d in all", one.bytes, two.bytes, s.replay.Load())
		}
		if len(one.tracks) > 100 {
			t.Fatalf("%d tracks", len(one.tracks))
		}
	}
	three.add(three.tracks[0], make([]byte, 4000)) // it has none of its own that could give way
	if s.replay.Load() > 15_000 || three.bytes != 0 {
		t.Errorf("%d bytes in all", s.replay.Load())
	}
	if len(one.events) < 20 {
		t.Errorf("control: only %d events are kept", len(one.events))
	}
	one.close()
	three.close()
	two.expire(time.Now().Add(time.Minute))
	if s.replay.Load() != 0 || one.bytes != 0 || len(two.events) != 0 {
		t.Errorf("%d bytes are left", s.replay.Load())
	}
	one.add(one.tracks[0], []byte("late"))
	if s.replay.Load() != 0 {
		t.Error("a session that is over keeps more")
	}
}

// An answer that is too long to be kept is answered for: a client that resumes does not wait for ever.
func TestALongAnswerIsAnsweredFor(t *testing.T) {
	_, replay := trails(10_000, 20_000)
	k := replay.begin()
	replay.end(k, make([]byte, 6000), []byte("stand-in"))
	events, done, _ := replay.after(k, 0)
	if len(events) != 1 || string(events[0].frame) != "stand-in" || !done {
		t.Errorf("%v %v", events, done)
	}
	if text := string(standIn(parseID(t))); !strings.Contains(text, `"id":3`) || !strings.Contains(text, "carried out") {
		t.Error(text)
	}
}

// The end of a stream that has to make room for itself can still be asked for.
func TestAnEndThatMakesRoomIsKept(t *testing.T) {
	_, replay := trails(10_000, 20_000)
	k := replay.begin()
	replay.add(k, make([]byte, 300))
	replay.add(replay.tracks[0], make([]byte, 4900))
	replay.end(k, make([]byte, 4900), nil)
	if len(replay.events) != 2 || replay.events[0].track != 0 || k.kept != 1 { // the earlier event was dropped
		t.Fatalf("control: %d events, %d of the stream", len(replay.events), k.kept)
	}
	if found, at := replay.find(replay.id(k, 1)); found != k || at != 1 {
		t.Error("the stream is forgotten with its end still there")
	}
}

// Who is not come back for is asked nothing more; a question that was asked is not waited for either.
func TestALostClientIsNotAskedForEver(t *testing.T) {
	for _, after := range []time.Duration{30 * time.Millisecond, time.Hour} {
		s, replay := trails(10_000, 20_000)
		s.o.Limits.Resume = after
		n := &session{replay: replay, life: t.Context()}
		over := make(chan struct{})
		l, ready := newResponseQueue(&serverRequests{over: over}), make(chan made, 1)
		go s.keepOn(n, replay.begin(), l, ready, parseID(t))
		ended := make(chan error, 1)
		go func() {
			_, err := l.Call(t.Context(), "elicitation/create", func(int64) any { return nil }, nil)
			ended <- err
		}()
		patience := 300 * time.Millisecond
		if after < time.Hour {
			patience = time.Minute
		}
		select {
		case e := <-ended:
			if e == nil || after == time.Hour {
				t.Errorf("after %s: %v", after, e)
			}
		case <-time.After(patience):
			if after < time.Hour {
				t.Errorf("after %s: it is still asked", after)
			}
		}
		close(over)
		ready <- made{}
	}
}

// FuzzEventID: an id that is taken is, to the letter, one that the session has given.
func FuzzEventID(f *testing.F) {
	_, replay := trails(10_000, 20_000)
	k := replay.begin()
	for range 3 {
		replay.add(k, []byte("x"))
	}
	f.Add("1-1")
	f.Add("0-0")
	f.Add("1-4")
	f.Add("+1-1")
	f.Fuzz(func(t *testing.T, rest string) {
		for _, id := range []string{rest, replay.name + "-" + rest} {
			if k, at := replay.find(id); k != nil && (replay.id(k, at) != id || at > k.seq) {
				t.Errorf("%q is taken for %d of %d", id, at, k.number)
			}
		}
	})
}

func parseID(t *testing.T) strictjson.Value {
	v, err := strictjson.Parse([]byte("3"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
