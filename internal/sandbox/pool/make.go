package pool

import (
	"context"
	"fmt"
	"time"

	"waldo/internal/sandbox"
)

// make makes a sandbox of the kind. Unless it is urgent, it waits for the runs to end, but not for long.
func (d *Driver) make(ctx context.Context, p sandbox.Profile, urgent bool) (sandbox.Warmer, error) {
	for end := time.Now().Add(politeFor); !urgent && d.busy.Load() > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	return d.warm(ctx, p, urgent && d.busy.Load() > 0)
}

// warm makes a sandbox whose command waits for its job.
func (d *Driver) warm(ctx context.Context, p sandbox.Profile, fast bool) (sandbox.Warmer, error) {
	if f, ok := d.Driver.(sandbox.Forker); ok && p.Prestart != nil {
		if err := f.Ready(ctx, p); err != nil && ctx.Err() == nil {
			d.tell(err) // then its interpreter is started for it alone
		}
	}
	b, err := d.Driver.Start(ctx, p)
	if err != nil {
		return nil, err
	}
	if f, ok := b.(sandbox.Forked); ok && fast && f.Forked() {
		if err := f.WarmFast(ctx); err != nil {
			d.tell(b.Close())
			return nil, err
		}
		return f, nil
	}
	w, ok := b.(sandbox.Warmer)
	if !ok {
		d.tell(b.Close())
		return nil, fmt.Errorf("pool: a sandbox of %s cannot be made ahead of its job", d.Name())
	}
	if p.Prestart == nil {
		return w, nil
	}
	if err := w.Warm(ctx); err != nil {
		d.tell(b.Close())
		return nil, err
	}
	return w, nil
}
