//go:build unix

package operator

import (
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// figures reports whether the figures of BENCHMARKS.md are wanted: they take a minute, and a quiet machine.
func figures(t *testing.T) {
	t.Helper()
	if os.Getenv("WALDO_FIGURES") == "" {
		t.Skip("set WALDO_FIGURES=1 to measure the console for BENCHMARKS.md")
	}
}

// spent is the processor time of this process.
func spent(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestFigureInbox: the inbox with 10,000 questions that wait, its first page, and all of them by the API.
func TestFigureInbox(t *testing.T) {
	figures(t)
	l := openLifelike(t)
	q, _, err := l.k.Question(l.ctx, l.asked)
	if err != nil {
		t.Fatal(err)
	}
	err = l.store.Update(l.ctx, func(tx *sql.Tx) error {
		for i := range 10_000 {
			one := q
			one.ID, one.Created = id.New(id.Approval), q.Created.Add(time.Duration(i)*time.Millisecond)
			b, err := json.Marshal(one)
			if err != nil {
				return err
			}
			if _, err = tx.Exec(`INSERT INTO approvals (id, binding, session, state, created, expires, question, answer, used_by)`+
				` VALUES ($1, $2, $3, 'pending', $4, $5, $6, '', '')`, one.ID, one.Binding(), string(one.Session),
				database.Stamp(one.Created), database.Stamp(one.Expires), string(b)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := l.login(site.RoleViewer)
	measure := func(name string, n int, do func()) {
		best, before := time.Hour, spent(t)
		for range n {
			began := time.Now()
			do()
			best = min(best, time.Since(began))
		}
		t.Logf("%s: best of %d %.1f ms; processor time of each %.1f ms", name, n, ms(best), ms(spent(t)-before)/float64(n))
	}
	measure("the page /approvals", 40, func() {
		if status, code := b.do("GET", "/approvals", nil, nil); status != 200 {
			t.Fatal(status, code)
		}
	})
	measure("all of them, 500 at a time", 5, func() {
		cursor, n := "", 0
		for {
			var page struct {
				Items []json.RawMessage
				Next  string `json:"next_cursor"`
			}
			if status, code := b.do("GET", "/api/v1/approvals?limit=500&cursor="+cursor, nil, &page); status != 200 {
				t.Fatal(status, code)
			}
			n += len(page.Items)
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if n != 10_003 {
			t.Fatal(n)
		}
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// TestFigurePaint: the first paint of each page over loopback.
func TestFigurePaint(t *testing.T) {
	figures(t)
	b := startChromium(t)
	l := openLifelike(t)
	_, at := l.listen()
	b.enter(l.desk, at, site.RoleOperator)
	b.look("light", 1200)
	for _, page := range []string{"/approvals", "/calls", "/calls/" + l.run, "/usage", "/contracts", "/log"} {
		var all []float64
		for range 12 {
			b.visit(at + page)
			b.until("performance.getEntriesByName('first-contentful-paint').length")
			v, err := strconv.ParseFloat(b.eval("performance.getEntriesByName('first-contentful-paint')[0].startTime"), 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
		slices.Sort(all)
		t.Logf("%s: first paint after %.0f ms at best, %.0f at the median of %d", page, all[0], all[len(all)/2], len(all))
	}
}

// TestWriter writes 100 calls a second into the log of another test's state directory until it is ended.
func TestWriter(t *testing.T) {
	dir := os.Getenv("WALDO_WRITER")
	if dir == "" {
		t.Skip("it runs for TestFigureIdle alone")
	}
	s, err := database.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Dir(dir), audit.Options{Heads: s})
	if err != nil {
		t.Fatal(err)
	}
	r := &audit.Recorder{Log: log}
	a, _ := call.ParseArgs([]byte(`{"repo":"acme/shop"}`))
	tick := time.NewTicker(10 * time.Millisecond)
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); <-tick.C {
		d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Allow, Danger: 1, Call: call.Call{ID: id.New(id.Call),
			Capability: "github.list_issues", Args: a, Session: "n_busy", Principal: "os:1000", Channel: "mcp"}}
		res := call.Result{Status: facts.OK, Facts: facts.New()}
		if err := r.Decision(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Outcome(t.Context(), d, res); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFigureIdle: the processor time of a console while another process makes 100 calls a second.
func TestFigureIdle(t *testing.T) {
	figures(t)
	b := startChromium(t)
	l := openLifelike(t)
	_, at := l.listen()
	b.enter(l.desk, at, site.RoleOperator)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	writer := exec.CommandContext(l.ctx, self, "-test.run=^TestWriter$")
	writer.Env = append(os.Environ(), "WALDO_WRITER="+l.dir)
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Process.Kill(); _ = writer.Wait() })
	for _, page := range []string{"about:blank", at + "/approvals", at + "/calls"} {
		b.do("Page.navigate", map[string]any{"url": page}, nil)
		time.Sleep(4 * time.Second)
		least := 100.0
		first, calls := l.decisions(), 0.0
		for range 4 {
			began, before := time.Now(), spent(t)
			time.Sleep(8 * time.Second)
			least = min(least, 100*float64(spent(t)-before)/float64(time.Since(began)))
			calls += time.Since(began).Seconds()
		}
		t.Logf("%s: %.2f %% of a core at least, beside %.0f calls a second", page, least, float64(l.decisions()-first)/calls)
	}
}
