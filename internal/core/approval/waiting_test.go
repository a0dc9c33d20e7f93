package approval

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// TestFigureWaiting times what a call that asks, an answer, a use and a page of the list take beside waiting questions,
// 10,000 with WALDO_FIGURES. All of them expire at the end.
func TestFigureWaiting(t *testing.T) {
	many := 500
	if os.Getenv("WALDO_FIGURES") != "" {
		many = 10_000
	}
	h := newFixture(t)
	q := h.shown(t, h.want(t, decide(t, `{"path":"/first"}`), "waiting"))
	n := 0
	round := func() (out [5]time.Duration) {
		const rounds = 40
		var all [len(out)][]time.Duration
		timed := func(i int, do func()) {
			at := time.Now()
			do()
			all[i] = append(all[i], time.Since(at))
		}
		for range rounds {
			n++
			d := decide(t, fmt.Sprintf(`{"path":"/%d"}`, n))
			var asked string
			timed(0, func() { asked = h.want(t, d, "waiting") })
			timed(1, func() { h.say(t, asked, true) })
			timed(2, func() { h.want(t, d, "yes") })
			timed(3, func() {
				if page, _, err := h.PendingPage(t.Context(), "", 50); err != nil || len(page) == 0 {
					t.Fatal(len(page), err)
				}
			})
			timed(4, func() {
				if _, err := h.CountPending(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
		for i := range all {
			slices.Sort(all[i])
			out[i] = all[i][rounds/2]
		}
		return out
	}
	alone := round()
	h.fill(t, q, many)
	h.exec(t, `UPDATE approvals SET place = (SELECT place FROM approvals WHERE id = '`+q.ID+`')`)
	beside := round()
	for i, what := range []string{"a call that asks", "its answer", "its use", "a page of 50", "the number"} {
		t.Logf("%s: %v alone, %v beside %d waiting", what, alone[i], beside[i], many)
	}
	if waiting, err := h.CountPending(t.Context()); err != nil || waiting != many+1 {
		t.Errorf("%d wait: %v", waiting, err)
	}
	h.pass(30 * 24 * time.Hour)
	at := time.Now()
	if err := h.Sweep(context.Background(), time.UnixMilli(h.at.Load())); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d expire in %v", many, time.Since(at))
	if waiting, err := h.CountPending(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d wait after their end: %v", waiting, err)
	}
}
