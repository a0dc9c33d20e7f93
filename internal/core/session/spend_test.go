package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// budgeted opens a session under these budgets, by a clock that the test moves.
func budgeted(t *testing.T, s contract.Sessions) (*Manager, Info, *time.Time) {
	t.Helper()
	at := time.Unix(1_800_000_000, 0)
	m := NewManager(Budgets(s), func() time.Time { return at })
	info, err := m.Open("os:1", "w_1")
	if err != nil {
		t.Fatal(err)
	}
	return m, info, &at
}

// TestSpentBudgets: each budget of sessions: refuses the next call and names its key; below it the call passes.
func TestSpentBudgets(t *testing.T) {
	args, err := call.ParseArgs([]byte(`{"a":"` + strings.Repeat("x", 1000) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	large := call.Result{Content: []call.Content{call.Text(strings.Repeat("y", 600<<10))}}
	for _, row := range []struct {
		why       string
		s         contract.Sessions
		depth     int
		spend     int // times
		wall      float64
		code, key string
	}{
		{"nothing is spent", contract.Sessions{}, 0, 0, 0, "", ""},
		{"calls", contract.Sessions{Calls: 2}, 0, 0, 0, "session.budget", "sessions.calls"},
		{"one byte budget is half spent", contract.Sessions{DataMB: 1}, 0, 1, 0, "", ""},
		{"bytes", contract.Sessions{DataMB: 1}, 0, 2, 0, "session.budget", "sessions.data_mb"},
		{"running time is left", contract.Sessions{RunSeconds: 3}, 0, 2, 1000, "", ""},
		{"running time", contract.Sessions{RunSeconds: 2}, 0, 2, 1000, "session.budget", "sessions.run_seconds"},
		{"the time of a program's calls is its run's", contract.Sessions{RunSeconds: 2}, 1, 9, 1000, "", ""},
		{"depth as allowed", contract.Sessions{Depth: 2}, 2, 0, 0, "", ""},
		{"depth", contract.Sessions{Depth: 2}, 3, 0, 0, "session.depth", "sessions.depth"},
	} {
		m, info, _ := budgeted(t, row.s)
		c := call.Call{Session: info.ID, Principal: "os:1", Depth: row.depth, Args: args}
		d := policy.Decision{Effect: policy.Allow, Call: c}
		for range 2 {
			if end, why := m.Take(policy.Decision{
				Effect: policy.Allow, Call: call.Call{Session: info.ID, Principal: "os:1"},
			}); why != nil {
				t.Fatalf("%s: control: %v", row.why, why)
			} else {
				end()
			}
		}
		for range row.spend {
			r := large
			r.Facts.Usage.WallMS = row.wall
			m.Spend(c, r)
		}
		_, why := m.Take(d)
		switch {
		case row.code == "" && why != nil:
			t.Errorf("%s: refused: %v", row.why, why)
		case row.code != "" && (why == nil || why.Code != row.code || !strings.Contains(why.Text, row.key)):
			t.Errorf("%s: %v, want %s with %s", row.why, why, row.code, row.key)
		}
	}
}

// TestPace: a program begins one second's calls at once, and then so many in each second. The agent itself and other
// sessions do not wait.
func TestPace(t *testing.T) {
	m, info, at := budgeted(t, contract.Sessions{CallsPerSecond: 10})
	other, err := m.Open("os:2", "w_2")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if wait := m.slot(info.ID); wait > 0 {
			t.Fatalf("call %d of the first ten waits %v", i, wait)
		}
	}
	for i := range 10 {
		if wait, want := m.slot(info.ID), time.Duration(i+1)*100*time.Millisecond; wait != want {
			t.Errorf("call %d of the next ten waits %v, want %v", i, wait, want)
		}
	}
	if wait := m.slot(other.ID); wait > 0 {
		t.Errorf("another session waits %v", wait)
	}
	*at = at.Add(time.Hour)
	for i := range 11 {
		if wait := m.slot(info.ID); (wait > 0) != (i == 10) {
			t.Errorf("after an hour, call %d waits %v", i, wait)
		}
	}
	if m.slot("n_none") <= 0 {
		t.Error("a call of no session does not wait")
	}
	for range 20 {
		m.slot(info.ID)
	}
	begin := time.Now()
	m.Pace(context.Background(), call.Call{Session: info.ID})
	if took := time.Since(begin); took > time.Second {
		t.Errorf("a call of the agent itself waited %v", took)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.Pace(ctx, call.Call{Session: info.ID, Depth: 1})
	if took := time.Since(begin); took > time.Second {
		t.Errorf("a cancelled call waited %v", took)
	}
}

// TestBound: new bounds hold for open sessions.
func TestBound(t *testing.T) {
	m, info, _ := budgeted(t, contract.Sessions{})
	d := policy.Decision{Effect: policy.Allow, Call: call.Call{Session: info.ID, Principal: "os:1", Depth: 2}}
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	m.Bound(Budgets(contract.Sessions{Depth: 1}))
	if _, why := m.Take(d); why == nil || why.Code != "session.depth" {
		t.Errorf("%v", why)
	}
}
