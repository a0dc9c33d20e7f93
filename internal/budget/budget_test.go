package budget

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// enter enters or fails at once.
func enter(t *testing.T, g *Gate, principal string, memory int64) (leave func()) {
	t.Helper()
	leave, err := g.Enter(t.Context(), principal, memory)
	if err != nil {
		t.Fatalf("%s, %d: %v", principal, memory, err)
	}
	return leave
}

func refused(t *testing.T, g *Gate, principal string, memory int64) {
	t.Helper()
	var full *Full
	if _, err := g.Enter(t.Context(), principal, memory); !errors.As(err, &full) {
		t.Errorf("%s, %d: %v", principal, memory, err)
	}
}

// TestBounds: each bound refuses a sandbox that the other would admit, and one that leaves makes room
// once.
func TestBounds(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 2, Wait: time.Millisecond})
	a := enter(t, g, "a", 10)
	enter(t, g, "a", 10)
	refused(t, g, "a", 10) // a third of one principal
	enter(t, g, "", 10)    // waldo's own are not counted
	enter(t, g, "", 10)
	enter(t, g, "", 10)
	b := enter(t, g, "b", 50)
	refused(t, g, "c", 1) // 100 are used
	b()
	b()
	refused(t, g, "c", 51)
	enter(t, g, "c", 50)
	refused(t, g, "d", 1)
	a()
	enter(t, g, "a", 10)
	alone := New(Limits{Memory: 100, Each: 2})
	leave := enter(t, alone, "a", 1000) // alone, as the operator's own run may be
	refused(t, alone, "b", 1)
	leave()
	enter(t, alone, "b", 1)
	refused(t, alone, "a", 1000)
}

// TestLine: a waiter gets in when there is room, and no small one passes a large one that is within its share.
func TestLine(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 2, Wait: time.Minute})
	first, second := enter(t, g, "a", 20), enter(t, g, "a", 80)
	in := make(chan string, 3)
	wait := func(ctx context.Context, name string, memory int64) {
		n := g.waiting
		go func() {
			if _, err := g.Enter(ctx, name, memory); err != nil {
				name += " " + err.Error()
			}
			in <- name
		}()
		for {
			g.mu.Lock()
			longer := g.waiting > n
			g.mu.Unlock()
			if longer {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	wait(gone, "gone", 100)
	wait(t.Context(), "large", 33)
	wait(t.Context(), "small", 1)
	cancel()
	if got := <-in; got != "gone context canceled" {
		t.Error(got)
	}
	first()
	select {
	case got := <-in:
		t.Errorf("%s passed", got)
	case <-time.After(50 * time.Millisecond):
	}
	second()
	if one, other := <-in, <-in; one+other != "largesmall" && one+other != "smalllarge" {
		t.Error(one, other)
	}
}

// TestNeverMore: the bounds hold at every moment, and at the end the gate is empty.
func TestNeverMore(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 3, Wait: time.Minute})
	var used, most atomic.Int64
	count := map[string]*atomic.Int64{"a": {}, "b": {}, "c": {}}
	var wg sync.WaitGroup
	for i := range 300 {
		name, memory := string(rune('a'+i%3)), int64(1+rand.Intn(60))
		wg.Go(func() {
			leave, err := g.Enter(t.Context(), name, memory)
			if err != nil {
				t.Error(err)
				return
			}
			if n := used.Add(memory); n > 100 {
				t.Errorf("%d are used", n)
			}
			n := count[name].Add(1)
			if most.Store(max(most.Load(), n)); n > 3 {
				t.Errorf("%d of %s", n, name)
			}
			time.Sleep(time.Duration(rand.Intn(1000)) * time.Microsecond)
			count[name].Add(-1)
			used.Add(-memory)
			leave()
		})
	}
	wg.Wait()
	if g.used != 0 || g.live != 0 || len(g.count) != 0 || g.waiting != 0 || most.Load() < 2 {
		t.Errorf("at the end: %+v, at most %d of one", g, most.Load())
	}
}

// TestLargeDelaysItsOwn: a sandbox beyond its principal's equal share delays later ones of that principal, and none of
// others, however many such wait. It gets in when there is room.
func TestLargeDelaysItsOwn(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 4, Wait: time.Minute})
	stays := enter(t, g, "b", 20)
	in := make(chan string, 9)
	for i, memory := range []int64{90, 90, 1} {
		go func() {
			if _, err := g.Enter(t.Context(), "a", memory); err == nil { // two wait until the end of the test
				in <- "a"
			}
		}()
		for waiting := 0; waiting <= i; time.Sleep(time.Millisecond) {
			g.mu.Lock()
			waiting = g.waiting
			g.mu.Unlock()
		}
	}
	began := time.Now()
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		leave, err := g.Enter(ctx, "b", 20)
		cancel()
		if err != nil {
			t.Fatalf("a small one of another principal: %v", err)
		}
		leave()
	}
	t.Logf("1000 small sandboxes of another principal passed in %v", time.Since(began))
	select {
	case <-in:
		t.Error("a later one of the same principal passed")
	default:
	}
	stays()
	if <-in; g.used != 90 {
		t.Errorf("%d used", g.used)
	}
}

// TestShareIsGivenBack: after a sandbox of a principal has ended, it counts in its share no longer.
func TestShareIsGivenBack(t *testing.T) {
	g := New(Limits{Memory: 100, Each: 4, Wait: time.Minute})
	enter(t, g, "a", 10)
	enter(t, g, "a", 30)()
	enter(t, g, "b", 60)
	in := make(chan error, 1)
	go func() { // 40 of 50
		_, err := g.Enter(t.Context(), "a", 31)
		in <- err
	}()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		waiting = g.waiting
		g.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Enter(ctx, "b", 1); err == nil {
		t.Error("a small one passed a larger one that is within its share")
	}
}

// TestShareOfBytes: one principal holds no more than its share, whatever it asks for, and another finds room beside it.
func TestShareOfBytes(t *testing.T) {
	g := New(Limits{Memory: 100, Share: 60, Each: 100, Wait: time.Millisecond})
	a := enter(t, g, "a", 1000) // counts as 60
	var full *Full
	if _, err := g.Enter(t.Context(), "a", 1); !errors.As(err, &full) || full.Limit != Share || full.Most != 60 {
		t.Errorf("beyond its share: %+v", err)
	}
	enter(t, g, "b", 40)
	if _, err := g.Enter(t.Context(), "c", 1); !errors.As(err, &full) || full.Limit != Memory {
		t.Errorf("beyond the sum: %+v", err)
	}
	a()
	enter(t, g, "a", 60)
	if _, err := (*Gate)(nil).Enter(t.Context(), "a", 0); !errors.As(err, &full) || full.Limit != None {
		t.Errorf("no gate: %v", err)
	}
}

// TestLease: a lease holds what it covers, once. It gives that back before it waits for more.
func TestLease(t *testing.T) {
	g := New(Limits{Memory: 100, Share: 100, Each: 100, Wait: time.Millisecond})
	l := g.Lease("a")
	for _, n := range []int64{10, 60, 30} { // 30 are held already
		if err := l.Cover(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, g, "b", 41)
	l.Shrink(20)
	over := enter(t, g, "b", 80)
	if err := l.Cover(t.Context(), 50); err == nil {
		t.Error("it covers what is not there")
	}
	enter(t, g, "c", 20) // it holds nothing after that
	over()
	//lint:ignore SA4000 the second call meets another state
	if l.Close() != nil || l.Close() != nil || (*Lease)(nil).Close() != nil {
		t.Error("closing fails")
	}
	enter(t, g, "d", 80)
	if (*Lease)(nil).Cover(t.Context(), 0) == nil {
		t.Error("a lease of nothing covers something")
	}
}

// TestTwoLeasesGrow: leases that all want more than is left get it one after the other.
func TestTwoLeasesGrow(t *testing.T) {
	g := New(Limits{Memory: 100, Share: 100, Each: 100, Wait: time.Minute})
	var wg sync.WaitGroup
	for range 10 {
		l := g.Lease("a")
		if err := l.Cover(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := l.Cover(t.Context(), 90); err != nil {
				t.Error(err)
			}
			_ = l.Close()
		})
	}
	wg.Wait()
	if g.used != 0 || g.live != 0 || g.waiting != 0 {
		t.Errorf("left: %d bytes, %d inside, %d wait", g.used, g.live, g.waiting)
	}
}
