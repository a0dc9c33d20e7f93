// Package prewarm makes values before they are needed: sandboxes, or parts of them. Each value goes to one taker.
package prewarm

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"
)

// Options say what a Keep makes. Make, Discard and Same are required.
type Options[K, V any] struct {
	// Make makes one value of a kind. urgent: a taker would find none.
	Make    func(ctx context.Context, kind K, urgent bool) (V, error)
	Discard func(V) error
	Same    func(a, b K) bool
	Usable  func(K, V) bool // asked before a value is handed out; nil: always
	Over    func(K) bool    // reports that no value of the kind can be used any more; nil: never
	Each    func(K) int     // most ready values of a kind; nil: Most
	Most    int             // most values that are wanted at a time, of all kinds; 0: nothing is made
	Makers  int             // values made at a time; 0: 1
	Forget  time.Duration   // a kind that was not asked for is dropped after this time; 0: 10 minutes
	Rest    time.Duration   // a value is made no sooner than this after the last request for its kind
	Failed  func(error)     // gets errors of Make and Discard; nil: they are dropped
}

// Keep holds values that are ready. It makes more in the background, as many of each kind as are requested. Close it.
type Keep[K, V any] struct {
	o Options[K, V]

	mu     sync.Mutex
	kinds  []*kind[K, V]
	closed bool

	start   sync.Once
	wake    chan struct{}
	life    context.Context // until Close
	stop    context.CancelFunc
	makers  sync.WaitGroup
	enders  sync.WaitGroup
	endings chan struct{} // one for each value that Discard is ending
}

type kind[K, V any] struct {
	key    K
	ready  []V
	making int
	want   int           // how many should be ready
	least  int           // how many at least, as Want said
	low    int           // the fewest that were ready since the last adapt
	asked  time.Time     // the last request
	retry  time.Time     // no attempt before this time
	pause  time.Duration // until the next attempt, if one more fails
}

const (
	look      = 5 * time.Second // time between two calls of adapt
	step      = 250 * time.Millisecond
	minPause  = time.Second
	maxPause  = time.Minute
	maxEnding = 64
	forget    = 10 * time.Minute
)

// New returns a Keep. It makes nothing before the first request.
func New[K, V any](o Options[K, V]) *Keep[K, V] {
	if o.Forget <= 0 {
		o.Forget = forget
	}
	if o.Makers <= 0 {
		o.Makers = 1
	}
	k := &Keep[K, V]{o: o, wake: make(chan struct{}, o.Makers), endings: make(chan struct{}, maxEnding)}
	k.life, k.stop = context.WithCancel(context.Background())
	return k
}

// Take returns the youngest ready value of a kind, if there is a usable one. Otherwise the Keep makes one more from
// then on.
func (k *Keep[K, V]) Take(key K) (v V, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.kind(key)
	if one == nil {
		return v, false
	}
	defer k.poke()
	one.asked = time.Now()
	for n := len(one.ready) - 1; n >= 0; n-- {
		v = one.ready[n]
		one.ready = one.ready[:n] // a value is handed out once
		one.low = min(one.low, n)
		if k.o.Usable == nil || k.o.Usable(key, v) {
			return v, true
		}
		k.end(v)
	}
	one.low = 0
	one.want++
	k.fit(one)
	var none V
	return none, false
}

// Want makes at least n values of a kind ready from now on, until other kinds need the space.
func (k *Keep[K, V]) Want(key K, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n <= 0 {
		return
	}
	if one := k.kind(key); one != nil {
		one.least = n
		one.want = max(one.want, n)
		k.fit(one)
	}
}

// Ready returns how many values of a kind are ready.
func (k *Keep[K, V]) Ready(key K) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.kinds {
		if k.o.Same(one.key, key) {
			return len(one.ready)
		}
	}
	return 0
}

// All yields the ready values, oldest first. They stay the Keep's: a value may be taken or ended at any time.
func (k *Keep[K, V]) All() iter.Seq2[K, V] {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []func(yield func(K, V) bool) bool
	for _, one := range k.kinds {
		for _, v := range one.ready {
			all = append(all, func(yield func(K, V) bool) bool { return yield(one.key, v) })
		}
	}
	return func(yield func(K, V) bool) {
		for _, next := range all {
			if !next(yield) {
				return
			}
		}
	}
}

// kind returns a kind and adds it if it is new; nil after Close, or with no Most.
func (k *Keep[K, V]) kind(key K) *kind[K, V] {
	if k.closed || k.o.Most <= 0 {
		return nil
	}
	k.start.Do(func() {
		for range k.o.Makers {
			k.makers.Go(k.make)
		}
		k.makers.Go(k.watch)
	})
	for _, one := range k.kinds {
		if k.o.Same(one.key, key) {
			return one
		}
	}
	one := &kind[K, V]{key: key, asked: time.Now()}
	k.kinds = append(k.kinds, one)
	return one
}

// fit makes space for the kind's target: it drops kinds that are over, and lowers the target of the kind with the
// oldest request.
func (k *Keep[K, V]) fit(one *kind[K, V]) {
	most := k.o.Most
	if k.o.Each != nil {
		most = min(most, k.o.Each(one.key))
	}
	one.want = min(one.want, most)
	k.dropOver()
	for {
		total, oldest := 0, (*kind[K, V])(nil)
		for _, other := range k.kinds {
			total += other.want
			if other != one && other.want > 0 && (oldest == nil || other.asked.Before(oldest.asked)) {
				oldest = other
			}
		}
		if total <= k.o.Most || oldest == nil {
			break
		}
		oldest.want--
		k.shrink(oldest)
	}
	k.poke()
}

// dropOver ends the values of kinds of which none can be used any more.
func (k *Keep[K, V]) dropOver() {
	for _, one := range slices.Clone(k.kinds) {
		if k.o.Over != nil && k.o.Over(one.key) {
			one.want, one.least = 0, 0
			k.shrink(one)
		}
	}
}

// shrink ends the values above the kind's target, and forgets a kind without a target.
func (k *Keep[K, V]) shrink(one *kind[K, V]) {
	for len(one.ready) > one.want {
		k.end(one.ready[0])
		one.ready = one.ready[1:]
	}
	if one.want == 0 && one.making == 0 {
		k.kinds = slices.DeleteFunc(k.kinds, func(other *kind[K, V]) bool { return other == one })
	}
}

func (k *Keep[K, V]) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// make makes values until Close.
func (k *Keep[K, V]) make() {
	for {
		one, urgent, wait := k.next()
		if one != nil {
			v, err := k.o.Make(k.life, one.key, urgent)
			k.made(one, v, err)
			continue
		}
		select {
		case <-k.life.Done():
			return
		case <-k.wake:
		case <-time.After(wait):
		}
	}
}

// next picks the kind that lacks most, and counts one more value of it as being made. Without one it returns how long
// to wait.
func (k *Keep[K, V]) next() (pick *kind[K, V], urgent bool, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, lack := time.Now(), 0
	wait = step
	for _, one := range k.kinds {
		n := one.want - len(one.ready) - one.making
		if n <= lack || k.closed {
			continue
		}
		if rest := max(one.retry.Sub(now), one.asked.Add(k.o.Rest).Sub(now)); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		pick, lack = one, n
	}
	if pick != nil {
		pick.making++
		urgent = len(pick.ready) == 0
	}
	return pick, urgent, wait
}

// made adds a value to its kind, if it is still wanted. After an error it waits before the next attempt, twice as long
// each time.
func (k *Keep[K, V]) made(one *kind[K, V], v V, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one.making--
	if err != nil {
		one.pause = min(max(minPause, 2*one.pause), maxPause)
		one.retry = time.Now().Add(one.pause)
		if !k.closed {
			k.enders.Go(func() { k.failed(err) })
		}
		return
	}
	one.pause = 0
	over := k.o.Over != nil && k.o.Over(one.key)
	if k.closed || over || len(one.ready) >= one.want {
		k.end(v)
		k.shrink(one)
		return
	}
	one.ready = append(one.ready, v)
}

// watch adapts the targets until Close.
func (k *Keep[K, V]) watch() {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-k.life.Done():
			return
		case now := <-tick.C:
			k.adapt(now)
		}
	}
}

// adapt lowers each kind's target by half of its unused values, to one at least. It forgets kinds without recent
// requests.
func (k *Keep[K, V]) adapt(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropOver()
	for _, one := range slices.Clone(k.kinds) {
		switch {
		case now.Sub(one.asked) > k.o.Forget:
			one.want = 0
		case one.low > 1:
			one.want = max(1, one.least, one.want-one.low/2)
		}
		k.shrink(one)
		one.low = len(one.ready)
	}
}

func (k *Keep[K, V]) failed(err error) {
	if err != nil && k.o.Failed != nil {
		k.o.Failed(err)
	}
}

// end discards a value in the background.
func (k *Keep[K, V]) end(v V) {
	k.enders.Go(func() { k.failed(k.o.Discard(v)) })
}

// Discard ends a value that was taken. It returns before that is done, unless very many are ending already or the Keep
// is closed.
func (k *Keep[K, V]) Discard(v V) error {
	k.endings <- struct{}{}
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.enders.Go(func() {
			defer func() { <-k.endings }()
			k.failed(k.o.Discard(v))
		})
	}
	k.mu.Unlock()
	k.poke()
	if closed {
		<-k.endings
		return k.o.Discard(v)
	}
	return nil
}

// Go runs f in the background; Close waits for it and ends its context. It runs nothing after Close.
func (k *Keep[K, V]) Go(f func(ctx context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.makers.Go(func() {
		if err := f(k.life); k.life.Err() == nil {
			k.failed(err)
		}
	})
}

// Close ends all ready values, and returns when all that were being ended are gone. Taken values stay.
func (k *Keep[K, V]) Close() error {
	k.mu.Lock()
	k.closed = true
	var all []V
	for _, one := range k.kinds {
		all = append(all, one.ready...)
		one.ready, one.want = nil, 0
	}
	k.mu.Unlock()
	k.stop()
	k.makers.Wait()
	var errs []error
	for _, v := range all {
		errs = append(errs, k.o.Discard(v))
	}
	k.enders.Wait()
	return errors.Join(errs...)
}
