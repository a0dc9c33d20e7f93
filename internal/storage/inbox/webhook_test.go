package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/testing/storetest"
)

// desk is a queue whose processes and clock a test chooses.
type desk struct {
	*Queue
	at   time.Time
	gone map[string]bool
}

func open(t *testing.T) *desk {
	t.Helper()
	s, err := storetest.Open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k := &desk{at: time.Unix(1_766_000_000, 0), gone: map[string]bool{}}
	k.Queue = &Queue{Store: s, Holder: "one", Gone: func(h string) bool { return k.gone[h] },
		Now: func() time.Time { return k.at }}
	return k
}

// as is the same queue in another process.
func (k *desk) as(holder string) *Queue {
	q := *k.Queue
	q.Holder = holder
	return &q
}

func (k *desk) accept(t *testing.T, name string, signed time.Time) Verdict {
	t.Helper()
	d := &Delivery{Hook: "h", Target: Agent, About: About{At: k.at, Name: name}, Body: []byte("\x00body of " + name)}
	v, err := k.Accept(t.Context(), d, Seen{Name: name, Signed: signed, Until: k.at.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestNew: what is recorded before it is stored is what Accept stores.
func TestNew(t *testing.T) {
	k := open(t)
	d, s := &Delivery{Hook: "h", Target: Agent}, Seen{Name: "x", Signed: k.at, Until: k.at.Add(time.Hour)}
	is, err := k.New(t.Context(), d, s.Name)
	if named := d.ID; !is || err != nil || named == "" {
		t.Fatalf("%q is new: %t %v", named, is, err)
	} else if v, err := k.Accept(t.Context(), d, s); v != Stored || err != nil || d.ID != named {
		t.Fatal(v, err)
	}
	got, err := k.Claim(t.Context(), Agent)
	if err != nil || got == nil || got.ID != d.ID || got.Digest() != d.Digest() {
		t.Fatalf("%+v %v", got, err)
	}
	if is, err := k.New(t.Context(), &Delivery{Hook: "h"}, s.Name); is || err != nil {
		t.Errorf("an accepted one is new: %t %v", is, err)
	}
	k.at = k.at.Add(2 * time.Hour)
	if is, err := k.New(t.Context(), &Delivery{Hook: "h"}, s.Name); !is || err != nil {
		t.Errorf("control: after its time it is new: %t %v", is, err)
	}
	k.Bytes = 3
	if is, err := k.New(t.Context(), &Delivery{Hook: "h", Body: []byte("long")}, "y"); is || err != nil {
		t.Errorf("one that the queue has no room for is new: %t %v", is, err)
	}
}

func TestAcceptOnce(t *testing.T) {
	k := open(t)
	signed := k.at
	if v := k.accept(t, "a", signed); v != Stored {
		t.Fatalf("control: %v", v)
	}
	if v := k.accept(t, "a", signed); v != Replayed {
		t.Errorf("the same again: %v", v)
	}
	if v := k.accept(t, "a", signed.Add(time.Second)); v != Repeated {
		t.Errorf("signed again: %v", v)
	}
	if v := k.accept(t, "a", signed.Add(time.Second)); v != Replayed {
		t.Errorf("a replay of what was signed again: %v", v)
	}
	if v := k.accept(t, "b", time.Time{}); v != Stored {
		t.Errorf("control: another: %v", v)
	}
	if v := k.accept(t, "b", time.Time{}); v != Replayed {
		t.Errorf("a replay without a time: %v", v)
	}
	d, err := k.Claim(t.Context(), Agent)
	if err != nil || d == nil || string(d.Body) != "\x00body of a" || d.Name != "a" || d.Tries != 1 {
		t.Fatalf("%+v %v", d, err)
	}
	if err := k.Done(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if v := k.accept(t, "a", signed); v != Replayed {
		t.Errorf("a replay of a delivery that is done: %v", v)
	}
	k.at = k.at.Add(2 * time.Hour)
	if v := k.accept(t, "a", signed); v != Stored {
		t.Errorf("control: after its time the id is forgotten, and the signed time refuses it: %v", v)
	}
}

func TestSeenForEver(t *testing.T) {
	k := open(t)
	for i, want := range []Verdict{Stored, Replayed} {
		v, err := k.Accept(t.Context(), &Delivery{Hook: "h", Target: Tool}, Seen{Name: "x"})
		if err != nil || v != want {
			t.Errorf("%d: %v %v", i, v, err)
		}
		k.at = k.at.AddDate(100, 0, 0)
	}
}

func TestAtOnce(t *testing.T) {
	k := open(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	count := map[Verdict]int{}
	for range 100 {
		all.Go(func() {
			v, err := k.Accept(context.Background(), &Delivery{Hook: "h", Target: Agent}, Seen{Name: "x", Signed: k.at})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			count[v]++
			mu.Unlock()
		})
	}
	all.Wait()
	if count[Stored] != 1 || count[Replayed] != 99 {
		t.Errorf("%v", count)
	}
}

func TestFull(t *testing.T) {
	k := open(t)
	k.Bytes = 400
	big := make([]byte, 100)
	for i := range 5 {
		v, err := k.Accept(t.Context(), &Delivery{Hook: "h", Target: Agent, Body: big}, Seen{Name: fmt.Sprint(i)})
		if want := []Verdict{Stored, Full}[i/4]; err != nil || v != want {
			t.Errorf("%d: %v %v", i, v, err)
		}
	}
	if v, _ := k.Accept(t.Context(), &Delivery{Hook: "other", Target: Agent}, Seen{Name: "1"}); v != Stored {
		t.Errorf("another hook: %v", v)
	}
	d, err := k.Claim(t.Context(), Agent)
	for err == nil && d != nil && d.Hook != "h" {
		d, err = k.Claim(t.Context(), Agent)
	}
	if err == nil {
		err = k.Done(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := k.Accept(t.Context(), &Delivery{Hook: "h", Target: Agent, Body: big}, Seen{Name: "4"}); v != Stored {
		t.Errorf("the sender's next try, once there is room: %v", v)
	}
}

// TestOneHolder: of many processes that ask at once, each delivery goes to one.
func TestOneHolder(t *testing.T) {
	k := open(t)
	const n = 40
	for i := range n {
		k.accept(t, fmt.Sprint(i), k.at)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	taken := map[string]int{}
	for p := range 8 {
		all.Go(func() {
			q := k.as(fmt.Sprint("p", p))
			for range 3 * n {
				d, err := q.Claim(context.Background(), Agent)
				if err != nil {
					t.Error(err)
				}
				if d == nil {
					continue
				}
				mu.Lock()
				taken[d.Name]++
				mu.Unlock()
				if err := q.Done(context.Background(), d); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range n {
		if taken[fmt.Sprint(i)] != 1 {
			t.Errorf("%d was handed over %d times", i, taken[fmt.Sprint(i)])
		}
	}
}

func TestTakeover(t *testing.T) {
	k := open(t)
	k.accept(t, "a", k.at)
	first := k.as("first")
	d, err := first.Claim(t.Context(), Agent)
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	if err := first.Begin(t.Context(), d, "run_1"); err != nil {
		t.Fatal(err)
	}
	if other, err := k.Claim(t.Context(), Agent); other != nil || err != nil {
		t.Fatalf("a delivery of a process at work was taken: %+v %v", other, err)
	}
	if err := k.Drop(t.Context(), d.ID); !errors.Is(err, ErrHeld) {
		t.Errorf("a delivery of a process at work was dropped: %v", err)
	}
	k.gone["first"] = true
	next, err := k.Claim(t.Context(), Agent)
	if err != nil || next == nil || next.Work != "run_1" || next.Tries != 2 {
		t.Fatalf("%+v %v", next, err)
	}
	for what, err := range map[string]error{
		"done": first.Done(t.Context(), d), "begin": first.Begin(t.Context(), d, "run_2"),
		"fail": first.Fail(t.Context(), d, Failure{Reason: "late"}),
	} {
		if !errors.Is(err, ErrLost) {
			t.Errorf("%s by the process that lost its claim: %v", what, err)
		}
	}
	if err := k.Done(t.Context(), next); err != nil {
		t.Error(err)
	}
	nameless := k.as("")
	if _, err := nameless.Claim(t.Context(), Agent); err == nil {
		t.Error("a process without a name claims")
	}
}

func TestFailures(t *testing.T) {
	k := open(t)
	k.accept(t, "a", k.at)
	claim := func() *Delivery {
		t.Helper()
		d, err := k.Claim(t.Context(), Agent)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for try := 1; try <= 3; try++ {
		d := claim()
		if d == nil || d.Tries != try {
			t.Fatalf("try %d: %+v", try, d)
		}
		if err := k.Fail(t.Context(), d, Failure{Reason: strings.Repeat("long", 1000), Max: 3}); err != nil {
			t.Fatal(err)
		}
		if early := claim(); early != nil {
			t.Errorf("try %d is repeated at once", try)
		}
		k.at = k.at.Add(2 * time.Hour)
	}
	if d := claim(); d != nil {
		t.Error("a dead delivery is tried")
	}
	all, err := k.List(t.Context())
	if err != nil || len(all) != 1 || all[0].State != Dead || len(all[0].Reason) != maxReason || all[0].Body != nil {
		t.Fatalf("%+v %v", all, err)
	}
	if err := k.Retry(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	d := claim()
	if d == nil || d.Tries != 1 {
		t.Fatalf("after retry: %+v", d)
	}
	if err := k.Fail(t.Context(), d, Failure{Reason: "waits for a human", Free: true, Max: 1}); err != nil {
		t.Fatal(err)
	}
	k.at = k.at.Add(2 * time.Hour)
	if d = claim(); d == nil || d.Tries != 1 {
		t.Fatalf("a wait counts as a try: %+v", d)
	}
	if err := k.Fail(t.Context(), d, Failure{Reason: "denied", Final: true}); err != nil || d.State != Dead {
		t.Errorf("%v %v", d.State, err)
	}
	if err := k.Drop(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	for _, err := range []error{k.Drop(t.Context(), d.ID), k.Retry(t.Context(), d.ID)} {
		if !errors.Is(err, ErrNone) {
			t.Error(err)
		}
	}
}

func TestBackoff(t *testing.T) {
	for tries, most := range map[int]time.Duration{
		-1: 5 * time.Second, 1: 5 * time.Second, 2: 20 * time.Second, 5: 1280 * time.Second, 12: time.Hour,
		1 << 40: time.Hour,
	} {
		var all []time.Duration
		for range 50 {
			all = append(all, Backoff(tries))
		}
		if slices.Max(all) > most || slices.Min(all) < most/2 || slices.Max(all) == slices.Min(all) {
			t.Errorf("%d: %v to %v", tries, slices.Min(all), slices.Max(all))
		}
	}
}
