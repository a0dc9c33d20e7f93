package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// handClock moves by its sleeps and by hand.
type handClock struct {
	now   time.Time
	slept []time.Duration
	most  []time.Duration
}

func (c *handClock) Now() time.Time { return c.now }

func (c *handClock) Jitter(d time.Duration) time.Duration {
	c.most = append(c.most, d)
	return d / 2
}

func (c *handClock) Sleep(ctx context.Context, d time.Duration) bool {
	c.slept, c.now = append(c.slept, d), c.now.Add(d)
	return ctx.Err() == nil
}

// awake executes a call of the server once it does not rest: by the machine's clock it does, after it was ended.
func awake(t *testing.T, m *Manager, k contract.Contract) call.Outcome {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, k))
		if !strings.Contains(text(o), "ended again") || time.Since(begun) > 30*time.Second {
			return o
		}
	}
}

// Retries wait with full jitter under a bound that doubles, and are one in ten calls of an upstream. Five failures in
// a row open the breaker; half open, one read closes it.
func TestRetriesAndBreaker(t *testing.T) {
	var calls atomic.Int64
	var works atomic.Bool
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(request, io.Writer) string {
		calls.Add(1)
		if works.Load() {
			return fine
		}
		time.Sleep(time.Hour)
		return ""
	})})
	clock := &handClock{now: time.Now()}
	var told []string
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}}}, Options{Launcher: f, Probe: 30 * time.Second, Clock: clock,
		Watcher: breakerNotes{told: &told}})
	defer m.Close()
	k := contract.Contract{Mode: contract.Read, Timeout: 50 * time.Millisecond,
		Retry: contract.Retry{Max: 2, On: []string{"timeout"}}}
	if o := awake(t, m, k); o.Facts.Status != facts.Timeout || calls.Load() != 3 {
		t.Fatalf("control: %s after %d tries: %s", o.Facts.Status, calls.Load(), text(o))
	}
	if len(clock.most) != 2 || clock.most[0] != firstGap || clock.most[1] != 2*firstGap || clock.slept[0] != firstGap/2 {
		t.Errorf("pauses of %v under %v", clock.slept, clock.most)
	}
	o := awake(t, m, k) // one retry is left in the budget
	if n := calls.Load(); n != 5 {
		t.Errorf("%d tries, where the budget has 3 retries", n)
	}
	if !strings.Contains(fmt.Sprint(o.Facts.Warnings), "circuit breaker of the server is open") {
		t.Errorf("the facts of the fifth failure: %q", o.Facts.Warnings)
	}
	write := contract.Contract{Mode: contract.Write, Timeout: 50 * time.Millisecond}
	try := func(k contract.Contract, want string, after ...int) {
		t.Helper()
		got := ""
		o := awake(t, m, k)
		if o.Refused != nil {
			got = o.Refused.Code
			if o.Refused.RetryAfter < 1 || o.Facts.SideEffect != facts.None || len(o.Facts.Warnings) == 0 {
				t.Errorf("a refusal without its time, or that did something: %+v", o.Refused)
			}
			if !slices.Equal(after, []int{o.Refused.RetryAfter}) {
				t.Errorf("again after %d s, want %v", o.Refused.RetryAfter, after)
			}
		}
		if got != want {
			t.Errorf("%q, want %q: %s", got, want, text(o))
		}
	}
	try(k, "upstream.open", 5)
	try(write, "upstream.open", 10) // a read tries the server first
	clock.now = clock.now.Add(firstOpen)
	try(write, "upstream.open", 5) // half open: a read tries it
	works.Store(true)
	k.Timeout, write.Timeout = time.Minute, time.Minute            // a busy machine answers late
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) { // a server that was ended rests by the machine's clock
		o := awake(t, m, k)
		if o.Facts.Status == facts.OK {
			break
		}
		if o.Refused != nil || time.Since(begun) > 30*time.Second {
			t.Fatalf("a read does not close the breaker: %+v, %s", o.Refused, text(o))
		}
	}
	try(write, "")
	if n := calls.Load(); n != 7 {
		t.Errorf("%d calls reached the server", n)
	}
	if want := []string{"s 5 true", "s 0 false"}; !slices.Equal(told, want) {
		t.Errorf("the breaker was told as %q", told)
	}
}

// TestBreakerKeepsOutcome: a write that may have taken place stays unknown when its own failure opens the breaker before
// its retry. The control is the next call: it is refused, and nothing happened.
func TestBreakerKeepsOutcome(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(request, io.Writer) string {
		time.Sleep(time.Hour)
		return ""
	})})
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}}},
		Options{Launcher: f, Probe: 30 * time.Second, Clock: &handClock{now: time.Now()}})
	defer m.Close()
	c := &m.servers["s"].circuit
	c.fails = openAfter - 1
	k := contract.Contract{Mode: contract.Write, Timeout: 2 * time.Second,
		Retry: contract.Retry{Max: 2, On: []string{"timeout"}}, Idempotency: contract.Idempotency{Argument: "key"}}
	o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, k))
	if o.Refused != nil || o.Facts.Status != facts.Timeout || o.Facts.SideEffect != facts.Unknown {
		t.Errorf("after a try: %+v, %+v", o.Refused, o.Facts)
	}
	if w := fmt.Sprint(o.Facts.Warnings); !strings.Contains(w, "breaker of the server is open") || !strings.Contains(w, "upstream.open") {
		t.Errorf("warnings %s", w)
	}
	o = execute(t, context.Background(), m, decision(t, "s.echo", `{}`, k))
	if o.Refused == nil || o.Refused.Code != "upstream.open" || o.Facts.SideEffect != facts.None {
		t.Errorf("control: %+v, %+v", o.Refused, o.Facts)
	}
}

// TestBreakerAfterReload: a manager that does not take a server over tells that its breaker is closed, and the breaker of
// before tells nothing more. The control is a server that is taken over: its breaker stays open.
func TestBreakerAfterReload(t *testing.T) {
	for _, row := range []struct {
		why  string
		same bool
		want []string
	}{
		{"made anew", false, []string{"s 5 true", "s 0 false"}},
		{"control: taken over", true, []string{"s 5 true", "s 6 true"}},
	} {
		f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(request, io.Writer) string { return fine })})
		var told []string
		o := Options{Launcher: f, Clock: &handClock{now: time.Now()}, Watcher: breakerNotes{told: &told}}
		servers := map[string]contract.Server{"s": {Command: []string{"s"}}}
		before, after := New(servers, o), New(servers, o)
		defer after.Close()
		defer before.Close()
		if o := awake(t, before, contract.Contract{Mode: contract.Read, Timeout: time.Minute}); o.Facts.Status != facts.OK {
			t.Fatalf("control: %s", text(o))
		}
		c := &before.servers["s"].circuit
		for range openAfter {
			if c.ended(false, true, false, o.Clock.Now()) {
				c.tell(o.Watcher, "s")
			}
		}
		after.Inherit(before, func(string, []string) bool { return row.same })
		if c.ended(true, true, false, o.Clock.Now()) { // a try that was under way
			c.tell(o.Watcher, "s")
		}
		if !slices.Equal(told, row.want) {
			t.Errorf("%s: told %q, want %q", row.why, told, row.want)
		}
	}
}

// An error of a tool says nothing about the transport.
func TestToolErrorsKeepTheBreakerClosed(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(request, io.Writer) string {
		return `{"content":[{"type":"text","text":"no"}],"isError":true}`
	})})
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}}}, Options{Launcher: f, Probe: 30 * time.Second})
	defer m.Close()
	for range 2 * openAfter {
		o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
		if o.Refused != nil || !o.Answered {
			t.Fatalf("%+v", o)
		}
	}
}

// A hundred calls that were under way when a server stalled open its breaker for the first time alone.
func TestStalledCallsOpenTheBreakerOnce(t *testing.T) {
	var c circuit
	now := time.Now()
	read := decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read})
	for range 100 {
		if why, _ := c.refusal(read, now); why != nil {
			t.Fatal(why)
		}
	}
	for range 100 {
		c.ended(false, true, false, now)
	}
	if c.open != firstOpen {
		t.Errorf("open for %v", c.open)
	}
	why, tries := c.refusal(read, now.Add(firstOpen))
	if why != nil || !tries {
		t.Errorf("half open: %v, %v", why, tries)
	}
	c.ended(false, true, false, now) // one more of the hundred
	if why, _ := c.refusal(read, now.Add(firstOpen)); why == nil {
		t.Error("two calls try at once")
	}
	c.ended(true, true, false, now.Add(firstOpen))
	if c.open != 2*firstOpen {
		t.Errorf("after a failed try: open for %v", c.open)
	}
}

// breakerNotes notes the changes of breakers.
type breakerNotes struct {
	Unwatched
	told *[]string
}

func (n breakerNotes) BreakerChanged(server string, fails int, until time.Time) {
	if fails > 0 || until.IsZero() { // else the server rests
		*n.told = append(*n.told, fmt.Sprint(server, " ", fails, " ", !until.IsZero()))
	}
}

// toolCount counts the changes of tools.
type toolCount struct {
	Unwatched
	n *atomic.Int64
}

func (c toolCount) ToolsChanged(string) { c.n.Add(1) }
