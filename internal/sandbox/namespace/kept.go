//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// kept holds things prepared in advance, of several kinds. From the first request for a kind on, a number of that
// kind is ready.
type kept[K comparable, V thing] struct {
	most func(K) int
	make func(K) (V, error)
	over func(K) bool // whether nothing of the kind is wanted any more

	mu     sync.Mutex
	ready  []one[K, V]
	making map[K]time.Time // when one was last asked for
	closed bool
	work   sync.WaitGroup
}

type one[K comparable, V thing] struct {
	kind  K
	thing V
}

// thing can be prepared in advance.
type thing interface {
	silent() error // an error: it has died while it waited
	close() error
}

// take returns one of the kind, if one is ready. More are made behind the caller.
func (k *kept[K, V]) take(kind K) (v V, ok bool) {
	most := k.most(kind)
	if most <= 0 {
		return v, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed { // the ready ones are being closed
		return v, false
	}
	if k.making == nil {
		k.making = map[K]time.Time{}
	}
	if _, ok := k.making[kind]; !ok {
		k.work.Go(func() { k.fill(kind, most) })
	}
	k.making[kind] = time.Now()
	for i := 0; i < len(k.ready); {
		o := k.ready[i]
		mine := o.kind == kind
		if mine && ok || !mine && !k.over(o.kind) {
			i++
			continue
		}
		k.ready = slices.Delete(k.ready, i, i+1)
		if mine && o.thing.silent() == nil {
			v, ok = o.thing, true
			continue
		}
		k.work.Go(func() { _ = o.thing.close() }) // nothing of it is wanted
	}
	return v, ok
}

// fillRest lets the sandboxes go first for which something was taken: where they come one after the other, nothing is
// made ahead.
const fillRest = 8 * time.Millisecond

// fill tops up the pool. It drops errors: the next caller creates its own and gets the error.
func (k *kept[K, V]) fill(kind K, most int) {
	for more := true; more; {
		for rest := fillRest; rest > 0; {
			time.Sleep(rest)
			k.mu.Lock()
			rest = fillRest - time.Since(k.making[kind])
			if k.closed {
				rest = 0
			}
			k.mu.Unlock()
		}
		v, err := k.make(kind)
		k.mu.Lock()
		late := k.closed || k.over(kind)
		if err == nil && !late {
			k.ready = append(k.ready, one[K, V]{kind, v})
		}
		n := 0
		for _, o := range k.ready {
			if o.kind == kind {
				n++
			}
		}
		if more = err == nil && !late && n < most; !more {
			delete(k.making, kind)
		}
		k.mu.Unlock()
		if err == nil && late {
			_ = v.close()
		}
	}
}

// close ends all of them.
func (k *kept[K, V]) close() error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.work.Wait()
	var errs []error
	for _, o := range k.ready { // no other goroutine uses them now
		errs = append(errs, o.thing.close())
	}
	return errors.Join(errs...)
}

// end ends a thing that was taken, behind the caller where close still waits for that.
func (k *kept[K, V]) end(v V) {
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.work.Go(func() { _ = v.close() })
	}
	k.mu.Unlock()
	if closed {
		_ = v.close()
	}
}
