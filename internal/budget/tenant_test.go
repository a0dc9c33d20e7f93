package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// await waits until so many wait in a gate.
func await(t *testing.T, g *Gate, n int) {
	t.Helper()
	waiting := -1
	for end := time.Now().Add(10 * time.Second); waiting != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d wait, not %d", waiting, n)
		}
		g.mu.Lock()
		waiting = g.waiting
		g.mu.Unlock()
	}
}

// flood has many principals enter, each with one entry. It returns a function that ends those that are inside, and
// reports how many these were.
func flood(t *testing.T, g *Gate, name string, n int) (end func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var inside []func()
	for i := range n {
		wg.Go(func() {
			if leave, err := g.Enter(ctx, fmt.Sprintf(name, i), 10); err == nil {
				mu.Lock()
				inside = append(inside, leave)
				mu.Unlock()
			}
		})
	}
	return func() int {
		cancel()
		wg.Wait()
		for _, leave := range inside {
			leave()
		}
		return len(inside)
	}
}

// TestANoisyTenant: one tenant of many principals has half of the memory at most. Another's calls start at once beside
// it, however many of the first wait, and the first one's line is bounded.
func TestANoisyTenant(t *testing.T) {
	const most = 5                                                                        // of 10 bytes, in half of 100
	for name, quiet := range map[string]bool{"noisy/token:%d": true, "token:%d": false} { // the control has no tenants
		g := New(Limits{Memory: 100, Each: 100, Wait: time.Minute})
		end := flood(t, g, name, 200)
		if quiet {
			await(t, g, 200-most)
		} else {
			await(t, g, 200-2*most)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		for range most {
			// with a tenant each enters; without, it finds the memory full
			if leave, err := g.Enter(now, "quiet/oidc:ann", 10); (err == nil) != quiet {
				t.Errorf("beside %s: %v", name, err)
			} else if err == nil {
				defer leave()
			}
			now, cancel = context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		if got := end(); quiet && got != most {
			t.Errorf("%d of the noisy tenant were inside", got)
		}
	}
	g := New(Limits{Memory: 100, Each: 100, Wait: time.Minute})
	end := flood(t, g, "noisy/token:%d", maxLine/2+most)
	await(t, g, maxLine/2)
	var full *Full
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := g.Enter(soon, "noisy/token:x", 10); !errors.As(err, &full) || full.Limit != Line {
		t.Errorf("beyond half of the line: %v", err)
	}
	leave, err := g.Enter(t.Context(), "quiet/token:x", 10)
	if err != nil {
		t.Errorf("another tenant, with half of the line taken: %v", err)
	} else {
		leave()
	}
	end()
	if len(g.group) != 0 || g.used != 0 || g.waiting != 0 {
		t.Errorf("left: %v, %d bytes, %d wait", g.group, g.used, g.waiting)
	}
}

// TestTheLeastTenantFirst: where the memory is full, the tenant that has the least goes next, whoever came first.
func TestTheLeastTenantFirst(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 100, Wait: time.Minute})
	var a []func()
	for range 5 {
		a = append(a, enter(t, g, "a/token:1", 10))
	}
	b := []func(){enter(t, g, "b/token:1", 20), enter(t, g, "b/token:1", 30)}
	in := make(chan string, 9)
	wait := func(name string) {
		go func() {
			if _, err := g.Enter(t.Context(), name, 10); err == nil {
				in <- name
			}
		}()
	}
	for i, name := range []string{"a/token:1", "a/token:2", "b/token:2", "c/token:1", "c/token:2"} {
		wait(name)
		await(t, g, i+1)
	}
	b[0]()
	got := []string{<-in, <-in}
	if slices.Sort(got); !slices.Equal(got, []string{"c/token:1", "c/token:2"}) {
		t.Errorf("in the place of b's: %v", got)
	}
	a[0]()
	if next := <-in; next != "b/token:2" { // b has 30 and a has 40
		t.Errorf("in the place of a's: %s", next)
	}
}

// TestTurnsOfTenants: a turn goes to each tenant in rotation, however many principals of one wait.
func TestTurnsOfTenants(t *testing.T) {
	turns := NewTurns(1)
	hold := turns.Enter("a/token:0")
	began := make(chan string)
	line := []string{"a/token:1", "a/token:2", "a/token:3", "b/token:1", "b/token:2"}
	for i, who := range line {
		go func() {
			leave := turns.Enter(who)
			began <- who
			leave()
		}()
		for n := 0; n <= i; time.Sleep(time.Millisecond) {
			turns.mu.Lock()
			n = len(turns.line)
			turns.mu.Unlock()
		}
	}
	hold()
	var got []string
	for range line {
		got = append(got, tenantOf(<-began))
	}
	if want := []string{"b", "a", "b", "a", "a"}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

// TestALargeEntryOfATenant: an entry that its tenant has no room for is not passed by smaller ones of the tenant, or it
// would never get in. Another tenant's entries are not delayed.
func TestALargeEntryOfATenant(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 100, Wait: time.Minute})
	first := enter(t, g, "a/token:1", 40)
	in := make(chan string, 2)
	for i, memory := range []int64{30, 10} { // the second would fit
		name := fmt.Sprintf("a/token:%d", 2+i)
		go func() {
			if leave, err := g.Enter(t.Context(), name, memory); err == nil {
				in <- name
				defer leave()
			}
		}()
		await(t, g, i+1)
	}
	enter(t, g, "b/token:1", 10)()
	if len(in) != 0 {
		t.Errorf("%s passed the entry before it", <-in)
	}
	first()
	got := []string{<-in, <-in}
	if slices.Sort(got); !slices.Equal(got, []string{"a/token:2", "a/token:3"}) {
		t.Errorf("after room came: %v", got)
	}
}

// BenchmarkTenants: how long a call of one tenant waits for a place, beside a flood of another tenant's that fills the
// line. Each place is held for a millisecond.
func BenchmarkTenants(b *testing.B) {
	for _, load := range []struct {
		name    string
		callers int
	}{{"alone", 0}, {"beside 500 callers of another tenant", 500}} {
		b.Run(load.name, func(b *testing.B) {
			g := New(Limits{Memory: 16, Each: 16, Wait: time.Minute})
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			call := func(who string) time.Duration {
				began := time.Now()
				leave, err := g.Enter(ctx, who, 1)
				if err != nil {
					return 0
				}
				time.Sleep(time.Millisecond)
				leave()
				return time.Since(began)
			}
			for i := range load.callers {
				wg.Go(func() {
					for ctx.Err() == nil {
						call(fmt.Sprintf("noisy/token:%d", i))
					}
				})
			}
			all := make([]time.Duration, 0, b.N)
			for b.Loop() {
				all = append(all, call("quiet/oidc:ann"))
			}
			cancel()
			wg.Wait()
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
		})
	}
}
