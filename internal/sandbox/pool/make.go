package pool

import (
	"context"
	"fmt"
	"time"

	"waldo/internal/sandbox"
)

// make makes sandboxes until the pool is closed.
func (d *Driver) make(ctx context.Context) {
	for {
		k, urgent := d.next()
		if k == nil {
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
			case <-time.After(step):
			}
			continue
		}
		if !urgent {
			d.polite(ctx)
		}
		b, err := d.one(ctx, k.profile, urgent && d.pressed())
		d.made(k, b, err)
	}
}

// next picks the kind that lacks most, and counts one more sandbox of it as being made. It is urgent if no
// sandbox of that kind is ready.
func (d *Driver) next() (k *kind, urgent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lack := 0
	for _, one := range d.kinds {
		if n := one.want - len(one.ready) - one.making; n > lack && time.Now().After(one.rest) {
			k, lack = one, n
		}
	}
	if k != nil {
		k.making++
		urgent = len(k.ready) == 0
	}
	return k, urgent
}

// polite waits for the runs to end, but not for long.
func (d *Driver) polite(ctx context.Context) {
	for end := time.Now().Add(politeFor); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		busy := d.busy
		d.mu.Unlock()
		if busy == 0 {
			return
		}
	}
}

// pressed reports whether runs are going on.
func (d *Driver) pressed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy > 0
}

// one makes a sandbox whose command waits for its job.
func (d *Driver) one(ctx context.Context, p sandbox.Profile, hurry bool) (sandbox.Warmer, error) {
	if f, ok := d.Driver.(sandbox.Forker); ok && p.Prestart != nil {
		if err := f.Ready(ctx, p); err != nil && ctx.Err() == nil {
			d.told(err) // then its interpreter is started for it alone
		}
	}
	b, err := d.Driver.Start(ctx, p)
	if err != nil {
		return nil, err
	}
	if f, ok := b.(sandbox.Forked); ok && hurry && f.Forked() {
		if err := f.Hurry(ctx); err != nil {
			d.end(b)
			return nil, err
		}
		return f, nil
	}
	w, ok := b.(sandbox.Warmer)
	if !ok {
		d.end(b)
		return nil, fmt.Errorf("pool: a sandbox of %s cannot be made ahead of its job", d.Name())
	}
	if p.Prestart == nil {
		return w, nil
	}
	if err := w.Warm(ctx); err != nil {
		d.end(b)
		return nil, err
	}
	return w, nil
}

// made puts a sandbox with the others of its kind, if it is still wanted.
func (d *Driver) made(k *kind, b sandbox.Warmer, err error) {
	d.mu.Lock()
	k.making--
	keep := err == nil && !d.closed && len(k.ready) < k.want
	if keep {
		k.ready = append(k.ready, b)
	}
	if err != nil {
		k.rest = time.Now().Add(failRest)
	}
	closed := d.closed
	d.mu.Unlock()
	if err != nil && !closed {
		d.told(err)
	}
	if b != nil && !keep {
		d.end(b)
	}
}

// watch adapts the sizes: the pool shrinks for sandboxes that were never needed.
func (d *Driver) watch(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			d.adapt(now)
		}
	}
}

// adapt lowers each kind's target by half of its unused sandboxes, to one at least. It forgets kinds without
// recent requests.
func (d *Driver) adapt(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range append([]*kind(nil), d.kinds...) {
		switch {
		case now.Sub(k.asked) > d.o.Forget:
			k.want = 0
		case k.low > 1:
			k.want = max(1, k.least, k.want-k.low/2)
		}
		d.shrink(k)
		k.low = len(k.ready)
	}
}
