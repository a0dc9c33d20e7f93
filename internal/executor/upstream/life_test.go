package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// With per_session each session has a server of its own, which ends with it; without, all share one.
func TestPerSession(t *testing.T) {
	for _, row := range []struct {
		own  bool
		want string // the answers to the calls of sessions a, b, a
	}{{true, "2 3 2"}, {false, "1 1 1"}} {
		t.Run(fmt.Sprint(row.own), func(t *testing.T) {
			var starts, ended atomic.Int64
			f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
				me := starts.Add(1)
				legacy(echoTool, func(request, io.Writer) string {
					return fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, me)
				})(in, out)
				ended.Add(1)
			}})
			m := New(map[string]contract.Server{"s": {Command: []string{"s"}, PerSession: row.own}},
				Options{Launcher: f, Probe: 30 * time.Second})
			if _, err := m.Tools(context.Background(), "s"); err != nil { // the one that is listed
				t.Fatal(err)
			}
			var said []string
			for _, n := range []call.Session{"a", "b", "a"} {
				d := decision(t, "s.echo", `{}`, contract.Contract{})
				d.Call.Session = n
				said = append(said, text(execute(t, context.Background(), m, d)))
			}
			if got := strings.Join(said, " "); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			m.Forget("a")
			for begin := time.Now(); row.own && ended.Load() != 1; time.Sleep(5 * time.Millisecond) {
				if time.Since(begin) > time.Minute {
					t.Fatalf("%d have ended with the session", ended.Load())
				}
			}
			_ = m.Close()
			if ended.Load() != starts.Load() {
				t.Errorf("%d of %d have ended", ended.Load(), starts.Load())
			}
		})
	}
}

// A new lock counts for the servers of single sessions, from their next call on.
func TestRelockPerSession(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(fine))})
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}, PerSession: true}},
		Options{Launcher: f, Probe: 30 * time.Second})
	defer m.Close()
	seen, err := m.Seen(context.Background(), "s")
	if err != nil {
		t.Fatal(err)
	}
	d := decision(t, "s.echo", `{}`, contract.Contract{})
	d.Call.Session = "a"
	for _, row := range []struct {
		tools map[string]string
		want  string
	}{
		{seen.Tools, "fine"}, {map[string]string{}, "lock.new"}, {map[string]string{"echo": "sha256:other"}, "lock.changed"},
		{seen.Tools, "fine"},
	} {
		now := seen
		now.Tools = row.tools
		m.Relock(&lockfile.Lock{Servers: map[string]lockfile.Locked{"s": now}})
		if got := text(execute(t, context.Background(), m, d)); !strings.Contains(got, row.want) {
			t.Errorf("with the tools %v: %q, not %s", row.tools, got, row.want)
		}
	}
}

func TestSessionsBeyondTheLimitHaveNoServer(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(fine))})
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}, PerSession: true}},
		Options{Launcher: f, Probe: 30 * time.Second})
	defer m.Close()
	for n := range maxChildren + 1 {
		d := decision(t, "s.echo", `{}`, contract.Contract{})
		d.Call.Session = call.Session(fmt.Sprint(n))
		want := "fine"
		if n == maxChildren {
			want = "not available"
		}
		if o := execute(t, context.Background(), m, d); !strings.Contains(text(o), want) {
			t.Fatalf("session %d: %q", n, text(o))
		}
	}
}

// A server that exits on every call costs a few starts, and then one now and then; calls in between fail at once with
// the reason.
func TestRestartsRest(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() {
				if strings.Contains(in.Text(), "tools/call") {
					break
				}
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		legacy(echoTool, answers(fine))(bufio.NewScanner(r), out)
	}})
	m := manager(t, f, Options{})
	s := m.servers["s"]
	since := func(d time.Duration) { // as if its last end had been so long ago
		s.mu.Lock()
		s.failedAt = time.Now().Add(-d)
		s.mu.Unlock()
	}
	var o call.Outcome
	for n := range 50 {
		if n > freeDeaths+2 {
			since(-time.Minute) // so that it rests for all of them, however long a busy machine takes
		}
		o = execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
	}
	starts := f.starts["s"].Load()
	if starts < freeDeaths+1 || starts > freeDeaths+3 {
		t.Errorf("started %d times over 50 calls", starts)
	}
	if !strings.Contains(text(o), "not available: it has ended again and again. Try again in ") ||
		!strings.Contains(text(o), "The call was not made.") {
		t.Errorf("%q", text(o))
	}
	if o.Refused == nil || o.Refused.Code != "upstream.resting" || o.Refused.RetryAfter < 1 {
		t.Errorf("%+v", o.Refused)
	}
	since(longestRest) // it has rested
	_ = execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
	if n := f.starts["s"].Load(); n != starts+1 {
		t.Errorf("started %d times after its rest, %d before", n, starts)
	}
	for n, want := range map[int]time.Duration{
		0: 0, freeDeaths: 0, freeDeaths + 1: time.Second, freeDeaths + 3: 4 * time.Second, freeDeaths + 1000: longestRest,
	} {
		s := &server{falls: n, failedAt: time.Now()}
		if got := s.backoff(); got > want || want-got > time.Since(s.failedAt) {
			t.Errorf("after %d falls: %s, wanted %s", n, got, want)
		}
	}
}

// TestRestart: a restart ends the process, and the next call has a new one. A server that is left alone since it failed
// is started again. Others stay.
func TestRestart(t *testing.T) {
	var ended atomic.Int64
	good := legacy(echoTool, answers(fine))
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){
		"s":     func(in *bufio.Scanner, out io.Writer) { good(in, out); ended.Add(1) },
		"other": good, "bad": func(*bufio.Scanner, io.Writer) {},
	})
	m := manager(t, f, Options{})
	ask := func(name string) string {
		return text(execute(t, context.Background(), m, decision(t, name+".echo", `{}`, contract.Contract{})))
	}
	if ask("s") != "fine" || ask("other") != "fine" || ended.Load() != 0 {
		t.Fatal("control: the servers do not answer")
	}
	if !m.Restart("s") || ask("s") != "fine" || ended.Load() != 1 || f.starts["s"].Load() != 2 || f.starts["other"].Load() != 1 {
		t.Errorf("%d ended; %d starts, %d of the other", ended.Load(), f.starts["s"].Load(), f.starts["other"].Load())
	}
	ask("bad")
	before := f.starts["bad"].Load()
	if ask("bad"); before == 0 || f.starts["bad"].Load() != before {
		t.Fatal("control: a server that fails is not left alone")
	}
	if m.Restart("bad"); ask("bad") == "" || f.starts["bad"].Load() == before {
		t.Error("a server that is left alone is not started after a restart")
	}
	if m.Restart("none") {
		t.Error("an unknown server was restarted")
	}
}
