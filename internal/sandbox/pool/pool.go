// Package pool prewarms sandboxes: another driver prepares them, each with an interpreter that waits for its
// one job, if the job's kind is known. A sandbox is used once and never goes back. The pool makes and ends
// sandboxes in the background, as many as are requested.
package pool

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"time"

	"waldo/internal/sandbox"
)

// Options bound a pool. The zero Options keep nothing.
type Options struct {
	Most   int           // sandboxes that wait at one time, of all kinds
	Forget time.Duration // an unused kind of sandbox is dropped after this time; 0: 10 minutes
	Failed func(error)   // gets errors of the background work; can be nil
}

// Driver is a driver whose sandboxes may be warm. It must be closed.
type Driver struct {
	sandbox.Driver
	o Options

	mu     sync.Mutex
	kinds  []*kind
	busy   int  // sandboxes that were handed out warm and are not closed
	closed bool // no sandbox is prepared any more

	wake    chan struct{}
	life    context.Context // until Close
	stop    context.CancelFunc
	makers  sync.WaitGroup
	closers sync.WaitGroup
	closing chan struct{} // one for each sandbox that is being ended
}

// kind is all the sandboxes that differ only in the parts that Adopt can change.
type kind struct {
	profile sandbox.Profile
	ready   []sandbox.Warmer
	making  int
	want    int       // how many should be ready
	least   int       // how many at least, as Keep said
	low     int       // the fewest that were ready since the last look
	asked   time.Time // when one was last wanted
	rest    time.Time // no attempt before this time, because the last one failed
}

const (
	makers    = 2
	enders    = 64                     // sandboxes being ended, before Close waits
	look      = 5 * time.Second        // the time between two adaptations of the sizes
	step      = 250 * time.Millisecond // how often something may have come due
	failRest  = time.Second
	forget    = 10 * time.Minute
	politeFor = 20 * time.Millisecond // how long a sandbox that is not urgent waits for the runs to end
)

// New returns a pool in front of a driver.
func New(d sandbox.Driver, o Options) *Driver {
	if o.Forget <= 0 {
		o.Forget = forget
	}
	p := &Driver{Driver: d, o: o, wake: make(chan struct{}, makers), closing: make(chan struct{}, enders)}
	if o.Most <= 0 {
		p.closed, p.stop = true, func() {}
		return p
	}
	ctx, stop := context.WithCancel(context.Background())
	p.life, p.stop = ctx, stop
	for range makers {
		p.makers.Go(func() { p.make(ctx) })
	}
	p.makers.Go(func() { p.watch(ctx) })
	return p
}

// pooled reports whether sandboxes of the profile can be prepared in advance: a mount or a network belongs to
// one job only.
func pooled(p sandbox.Profile) bool {
	return len(p.Mounts) == 0 && reflect.ValueOf(p.Network).IsZero() && p.Share == nil
}

// general returns the profile without what Adopt brings.
func general(p sandbox.Profile) sandbox.Profile {
	p.ID = ""
	p.Limits.Wall, p.Limits.Output = time.Hour, 1
	p.Tmpfs = slices.Clone(p.Tmpfs)
	for i := range p.Tmpfs {
		p.Tmpfs[i].Seed = ""
	}
	return p
}

// Start returns a sandbox that waits for a job like this, or else prepares one as the driver does.
func (d *Driver) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if pooled(p) {
		for b := d.take(general(p)); b != nil; b = d.take(general(p)) {
			if err := b.Adopt(p); err == nil {
				d.used()
				return &box{Warmer: b, pool: d}, nil
			}
			d.end(b) // it has died, or the job's files cannot be had: the driver will say
		}
	}
	b, err := d.Driver.Start(ctx, p)
	if err != nil || p.Prestart == nil {
		return b, err
	}
	if f, ok := b.(sandbox.Forked); ok && f.Forked() {
		d.used()
		out := &box{Warmer: f, pool: d}
		if err := f.Hurry(ctx); err != nil {
			return nil, errors.Join(err, out.Close())
		}
		return out, nil
	}
	d.ready(p)
	return b, nil
}

// ready sees to it, behind the runs, that the next sandbox of the profile can be forked.
func (d *Driver) ready(p sandbox.Profile) {
	f, ok := d.Driver.(sandbox.Forker)
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok && !d.closed {
		d.makers.Go(func() {
			if err := f.Ready(d.life, p); d.life.Err() == nil {
				d.told(err)
			}
		})
	}
}

// used counts a sandbox that is handed out.
func (d *Driver) used() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy++
}

// Keep sets the number of sandboxes that are ready before the first such job. The pool keeps at least as many
// from then on, until other kinds need the space.
func (d *Driver) Keep(p sandbox.Profile, n int) {
	d.ready(p)
	if !pooled(p) || n <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.kind(general(p)); k != nil {
		k.least = n
		k.want = max(k.want, n)
		d.fit(k)
	}
}

// Ready returns how many sandboxes wait for such a job.
func (d *Driver) Ready(p sandbox.Profile) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.kinds {
		if reflect.DeepEqual(k.profile, general(p)) {
			return len(k.ready)
		}
	}
	return 0
}

// kind returns the kind of a general profile, which from now on there is; nil after Close.
func (d *Driver) kind(p sandbox.Profile) *kind {
	if d.closed {
		return nil
	}
	for _, k := range d.kinds {
		if reflect.DeepEqual(k.profile, p) {
			return k
		}
	}
	k := &kind{profile: p, asked: time.Now()}
	d.kinds = append(d.kinds, k)
	return k
}

// take removes the youngest sandbox of the kind from the pool. It returns nil if none is ready.
func (d *Driver) take(p sandbox.Profile) sandbox.Warmer {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kind(p)
	if k == nil {
		return nil
	}
	defer d.poke()
	k.asked = time.Now()
	n := len(k.ready)
	if n == 0 {
		k.low = 0
		k.want++
		d.fit(k)
		return nil
	}
	b := k.ready[n-1]
	k.ready = k.ready[:n-1] // a sandbox is handed out once
	k.low = min(k.low, n-1)
	return b
}

// fit makes space for the kind's target: it lowers the target of the kind with the oldest last request. A kind
// with target zero is forgotten.
func (d *Driver) fit(k *kind) {
	k.want = min(k.want, d.o.Most)
	for {
		total, oldest := 0, (*kind)(nil)
		for _, other := range d.kinds {
			total += other.want
			if other != k && other.want > 0 && (oldest == nil || other.asked.Before(oldest.asked)) {
				oldest = other
			}
		}
		if total <= d.o.Most || oldest == nil {
			break
		}
		oldest.want--
		d.shrink(oldest)
	}
	d.poke()
}

// shrink ends what is more than the kind wants, and forgets a kind that wants nothing.
func (d *Driver) shrink(k *kind) {
	for len(k.ready) > k.want {
		d.end(k.ready[0])
		k.ready = k.ready[1:]
	}
	if k.want == 0 && k.making == 0 {
		d.kinds = slices.DeleteFunc(d.kinds, func(other *kind) bool { return other == k })
	}
}

func (d *Driver) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// end ends a sandbox behind the runs.
func (d *Driver) end(b sandbox.Sandbox) {
	d.closers.Go(func() { d.told(b.Close()) })
}

func (d *Driver) told(err error) {
	if err != nil && d.o.Failed != nil {
		d.o.Failed(err)
	}
}

// Close ends all sandboxes that wait, and returns when those that were being ended are gone too. Sandboxes that
// were handed out stay until they are closed.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	var all []sandbox.Warmer
	for _, k := range d.kinds {
		all = append(all, k.ready...)
		k.ready, k.want = nil, 0
	}
	d.kinds = nil
	d.mu.Unlock()
	d.stop()
	d.makers.Wait()
	var errs []error
	for _, b := range all {
		errs = append(errs, b.Close())
	}
	d.closers.Wait()
	if c, ok := d.Driver.(io.Closer); ok {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// box is a sandbox that was handed out.
type box struct {
	sandbox.Warmer
	pool *Driver
	once sync.Once
}

// Close ends the sandbox. It returns before everything in it is gone, unless very many are ending already or
// the pool is closed.
func (b *box) Close() (err error) {
	b.once.Do(func() {
		d := b.pool
		d.mu.Lock()
		d.busy--
		closed := d.closed
		d.mu.Unlock()
		d.poke()
		if closed {
			err = b.Warmer.Close()
			return
		}
		d.closing <- struct{}{}
		d.closers.Go(func() {
			defer func() { <-d.closing }()
			d.told(b.Warmer.Close())
		})
	})
	return err
}

var _ sandbox.Warmer = (*box)(nil)
