// Package pool prewarms sandboxes: another driver prepares them, each with an interpreter that waits for its
// one job, if the job's kind is known. A sandbox is used once and never goes back. The pool makes and ends
// sandboxes in the background, as many as are requested.
package pool

import (
	"cmp"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/prewarm"
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
	failed func(error)
	keep   *prewarm.Keep[sandbox.Profile, sandbox.Warmer] // general returns kinds
	busy   atomic.Int32                                   // sandboxes that were handed out warm and are not closed
}

const (
	makers    = 2
	politeFor = 20 * time.Millisecond // how long a sandbox that is not urgent waits for the runs to end
)

// New returns a pool in front of a driver.
func New(d sandbox.Driver, o Options) *Driver {
	p := &Driver{Driver: d, failed: o.Failed}
	p.keep = prewarm.New(prewarm.Options[sandbox.Profile, sandbox.Warmer]{
		Make:    p.make,
		Discard: func(b sandbox.Warmer) error { return b.Close() },
		Same:    func(a, b sandbox.Profile) bool { return reflect.DeepEqual(a, b) },
		Most:    o.Most, Makers: makers, Forget: o.Forget, Failed: o.Failed,
	})
	if o.Most <= 0 {
		_ = p.keep.Close() // it is empty: sandboxes are closed by their users
	}
	return p
}

// pooled reports whether sandboxes of the profile can be prepared in advance: a network, or a mount outside of the
// template, belongs to one job only.
func pooled(p sandbox.Profile) bool {
	return !slices.ContainsFunc(p.Mounts, func(m sandbox.Mount) bool { return !m.Template }) &&
		reflect.ValueOf(p.Network).IsZero() && p.Share == nil
}

// general returns the profile without what Assign brings.
func general(p sandbox.Profile) sandbox.Profile {
	p.ID = ""
	p.Limits.Wall, p.Limits.Output = time.Hour, 1
	p.Tmpfs = slices.Clone(p.Tmpfs)
	for i := range p.Tmpfs {
		p.Tmpfs[i].Seed, p.Tmpfs[i].Only = "", nil
	}
	return p
}

// Start returns a sandbox that waits for a job like this, or else prepares one as the driver does.
func (d *Driver) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if pooled(p) {
		for b, ok := d.keep.Take(general(p)); ok; b, ok = d.keep.Take(general(p)) {
			err := b.Assign(p)
			if err == nil {
				return d.handOut(b), nil
			}
			d.tell(d.keep.Discard(b))
			if err := cmp.Or(ctx.Err(), onlyFiles(err)); err != nil {
				return nil, err
			} // else it has died
		}
	}
	b, err := d.Driver.Start(ctx, p)
	if err != nil || p.Prestart == nil {
		return b, err
	}
	if f, ok := b.(sandbox.Forked); ok && f.Forked() {
		out := d.handOut(f)
		if err := f.WarmFast(ctx); err != nil {
			return nil, errors.Join(err, out.Close())
		}
		return out, nil
	}
	d.ready(p)
	return b, nil
}

// onlyFiles returns an error about the job's own files, which the next sandbox would not hold either; else nil.
func onlyFiles(err error) error {
	if errors.Is(err, sandbox.ErrFiles) {
		return err
	}
	return nil
}

// ready prepares, in the background, that the next sandbox of the profile can be forked.
func (d *Driver) ready(p sandbox.Profile) {
	if f, ok := d.Driver.(sandbox.Forker); ok {
		d.keep.Go(func(ctx context.Context) error { return f.Ready(ctx, p) })
	}
}

// handOut counts a sandbox until it is closed.
func (d *Driver) handOut(b sandbox.Warmer) *instance {
	d.busy.Add(1)
	return &instance{Warmer: b, pool: d}
}

// Keep sets the number of sandboxes that are ready before the first such job. The pool keeps at least as many
// from then on, until other kinds need the space.
func (d *Driver) Keep(p sandbox.Profile, n int) {
	d.ready(p)
	if pooled(p) {
		d.keep.Want(general(p), n)
	}
}

// Ready returns how many sandboxes wait for such a job.
func (d *Driver) Ready(p sandbox.Profile) int { return d.keep.Ready(general(p)) }

func (d *Driver) tell(err error) {
	if err != nil && d.failed != nil {
		d.failed(err)
	}
}

// Close ends all sandboxes that wait, and returns when those that were being ended are gone too. Sandboxes that
// were handed out stay until they are closed.
func (d *Driver) Close() error {
	err := d.keep.Close()
	if c, ok := d.Driver.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// instance is a sandbox that was handed out.
type instance struct {
	sandbox.Warmer
	pool *Driver
	once sync.Once
}

// Close ends the sandbox. It returns before everything in it is gone, unless very many are ending already or
// the pool is closed.
func (b *instance) Close() (err error) {
	b.once.Do(func() {
		b.pool.busy.Add(-1)
		err = b.pool.keep.Discard(b.Warmer)
	})
	return err
}

var _ sandbox.Warmer = (*instance)(nil)
