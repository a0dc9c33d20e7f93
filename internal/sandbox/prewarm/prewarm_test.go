package prewarm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shop makes numbered values and counts them.
type shop struct {
	made, discarded atomic.Int32
	fail            atomic.Bool
}

func (s *shop) options(most int) Options[string, int32] {
	return Options[string, int32]{
		Make: func(context.Context, string, bool) (int32, error) {
			if s.fail.Load() {
				return 0, errors.New("nothing to be had")
			}
			return s.made.Add(1), nil
		},
		Discard: func(int32) error { s.discarded.Add(1); return nil },
		Same:    func(a, b string) bool { return a == b },
		Most:    most,
	}
}

// closed closes k and reports values that were neither handed out nor discarded.
func (s *shop) closed(t *testing.T, k *Keep[string, int32], taken int32) {
	t.Helper()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if made, gone := s.made.Load(), s.discarded.Load(); made != gone+taken {
		t.Errorf("%d values made, %d discarded, %d taken", made, gone, taken)
	}
	if _, ok := k.Take("a"); ok {
		t.Error("a closed Keep hands out a value")
	}
	if err := k.Close(); err != nil {
		t.Error("closed twice:", err)
	}
}

func TestZeroMakesNothing(t *testing.T) {
	s := &shop{}
	k := New(s.options(0))
	k.Want("a", 2)
	if _, ok := k.Take("a"); ok || k.Ready("a") != 0 {
		t.Error("a Keep of none has a value")
	}
	s.closed(t, k, 0)
	if s.made.Load() != 0 {
		t.Errorf("%d made", s.made.Load())
	}
}

// TestRefills: the first request finds nothing, and a value is ready for the next, each time.
func TestRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		k := New(s.options(4))
		if _, ok := k.Take("a"); ok {
			t.Error("the first was ready")
		}
		for range 3 {
			synctest.Wait()
			if n := k.Ready("a"); n != 1 {
				t.Errorf("%d ready, wanted 1", n)
			}
			if _, ok := k.Take("a"); !ok {
				t.Error("none was ready")
			}
		}
		synctest.Wait()
		if _, ok := k.Take("b"); ok || k.Ready("a") != 1 {
			t.Error("a value was handed out as another kind")
		}
		s.closed(t, k, 3)
	})
}

// TestOnce: each value goes to one taker, however many ask, and those of a closed Keep are all discarded.
func TestOnce(t *testing.T) {
	s := &shop{}
	o := s.options(8)
	o.Makers = 4
	k := New(o)
	k.Want("a", 8)
	var seen sync.Map
	var taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 300 {
				v, ok := k.Take("a")
				if !ok {
					time.Sleep(time.Millisecond)
					continue
				}
				if _, twice := seen.LoadOrStore(v, true); twice {
					t.Errorf("%d was handed out twice", v)
				}
				if i%2 == 0 {
					_ = k.Discard(v)
				} else {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if taken.Load() == 0 {
		t.Error("control: nothing was ready")
	}
	s.closed(t, k, taken.Load())
}

// TestBounded: all kinds together have at most Most ready values, a kind at most Each; the oldest kind gives way.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		o := s.options(3)
		o.Each = func(kind string) int { return map[string]int{"a": 1, "b": 3}[kind] }
		k := New(o)
		k.Want("a", 5)
		synctest.Wait()
		if n := k.Ready("a"); n != 1 {
			t.Errorf("%d of a kind that has 1 at most", n)
		}
		time.Sleep(time.Millisecond)
		k.Want("b", 5)
		synctest.Wait()
		if a, b := k.Ready("a"), k.Ready("b"); a != 0 || b != 3 {
			t.Errorf("%d and %d ready, wanted 0 and 3", a, b)
		}
		s.closed(t, k, 0)
	})
}

// TestAdapts: values that nothing takes become fewer, but not below Want, and an unused kind is forgotten.
func TestAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		o := s.options(8)
		o.Forget = time.Hour
		k := New(o)
		for range 8 {
			k.Take("a")
		}
		synctest.Wait()
		if n := k.Ready("a"); n != 8 {
			t.Errorf("control: %d ready, wanted 8", n)
		}
		k.Want("a", 2)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := k.Ready("a"); n != 2 {
			t.Errorf("%d ready, wanted 2", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := k.Ready("a"); n != 0 || len(k.kinds) != 0 {
			t.Errorf("%d ready of a kind that is forgotten", n)
		}
		s.closed(t, k, 0)
	})
}

// TestUnusable: a value that has died is discarded and not handed out, and a kind that is over loses all.
func TestUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		var over atomic.Bool
		o := s.options(4)
		o.Usable = func(_ string, v int32) bool { return v != 2 }
		o.Over = func(kind string) bool { return kind == "a" && over.Load() }
		k := New(o)
		k.Want("a", 2)
		synctest.Wait()
		if v, ok := k.Take("a"); !ok || v != 1 {
			t.Errorf("%d was handed out, wanted 1", v)
		}
		synctest.Wait()
		over.Store(true)
		k.Want("b", 1)
		synctest.Wait()
		if a, b := k.Ready("a"), k.Ready("b"); a != 0 || b != 1 {
			t.Errorf("%d of a kind that is over, %d of another", a, b)
		}
		s.closed(t, k, 1)
	})
}

// TestBacksOff: after an error the next attempt waits 1 s, then twice as long each time, up to a minute.
func TestBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		s.fail.Store(true)
		var failed atomic.Int32
		o := s.options(1)
		o.Failed, o.Forget = func(error) { failed.Add(1) }, time.Hour
		k := New(o)
		k.Want("a", 1)
		for _, row := range []struct {
			until time.Duration
			want  int32
		}{{500 * time.Millisecond, 1}, {1400 * time.Millisecond, 2}, {3400 * time.Millisecond, 3}, {10 * time.Minute, 15}} {
			time.Sleep(row.until)
			synctest.Wait()
			if got := failed.Load(); got < row.want || got > row.want+1 {
				t.Errorf("%d attempts after %v more, wanted %d", got, row.until, row.want)
			}
		}
		s.fail.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if k.Ready("a") != 1 {
			t.Error("it has not tried again")
		}
		s.closed(t, k, 0)
	})
}

// TestRest: a value is made no sooner than Rest after the last request.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		o := s.options(1)
		o.Rest = 8 * time.Millisecond
		k := New(o)
		for range 5 {
			k.Take("a")
			time.Sleep(6 * time.Millisecond)
			synctest.Wait()
		}
		if s.made.Load() != 0 {
			t.Errorf("%d made between requests", s.made.Load())
		}
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
		if s.made.Load() != 1 {
			t.Errorf("control: %d made after them", s.made.Load())
		}
		s.closed(t, k, 0)
	})
}

// TestCloseWaits: Close returns after the last value is gone, one that is still being made included, and a value that
// is discarded later is gone when Discard returns.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		o := s.options(2)
		make := o.Make
		o.Make = func(ctx context.Context, kind string, urgent bool) (int32, error) {
			time.Sleep(time.Second)
			return make(ctx, kind, urgent)
		}
		discard := o.Discard
		o.Discard = func(v int32) error { time.Sleep(time.Second); return discard(v) }
		k := New(o)
		k.Want("a", 1)
		time.Sleep(1500 * time.Millisecond)
		v, ok := k.Take("a")
		if !ok {
			t.Fatal("control: none was ready")
		}
		synctest.Wait() // another is being made
		s.closed(t, k, 1)
		if n := s.discarded.Load(); n != 1 {
			t.Errorf("%d discarded, wanted the one that was being made", n)
		}
		if err := k.Discard(v); err != nil || s.discarded.Load() != 2 {
			t.Errorf("discarded late: %d, %v", s.discarded.Load(), err)
		}
	})
}

// TestClosing: a Keep that is being closed hands out nothing that it discards, and makes nothing more.
func TestClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		o := s.options(2)
		var slow atomic.Bool
		make := o.Make
		o.Make = func(ctx context.Context, kind string, urgent bool) (int32, error) {
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return make(ctx, kind, urgent)
		}
		discard := o.Discard
		o.Discard = func(v int32) error { time.Sleep(time.Second); return discard(v) }
		k := New(o)
		k.Want("a", 2)
		synctest.Wait()
		slow.Store(true)
		if _, ok := k.Take("a"); !ok || k.Ready("a") != 1 {
			t.Fatalf("control: %d ready after one was taken", k.Ready("a"))
		}
		synctest.Wait() // another is being made
		closed := false
		go func() { _ = k.Close(); closed = true }()
		for _, at := range []string{"one is being made", "one is being discarded"} {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if closed {
				t.Fatal("control: Close did not wait while " + at)
			}
			if v, ok := k.Take("a"); ok {
				t.Errorf("%d was handed out while %s", v, at)
			}
			if n := k.Ready("a"); n != 0 {
				t.Errorf("%d ready while %s", n, at)
			}
			time.Sleep(600 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if made := s.made.Load(); made != 3 {
			t.Errorf("%d made, wanted 3: none after Close began", made)
		}
		s.closed(t, k, 1)
	})
}
