//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/prestart"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// Warm starts the command of the profile's Prestart and returns when it has read the whole head.
func (b *instance) Warm(ctx context.Context) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.over() {
		return errGone
	}
	if b.profile.Prestart == nil || b.waiting != nil {
		return errors.New("gvisor: no command to start ahead")
	}
	b.waiting = &prestart.Waiting{Prestart: *b.profile.Prestart}
	if err := b.warm(ctx, b.waiting); err != nil {
		return fmt.Errorf("gvisor: a command started ahead: %w", err)
	}
	return nil
}

func (b *instance) warm(ctx context.Context, w *prestart.Waiting) error {
	c, err := w.Command()
	if err != nil {
		return err
	}
	defer c.Bridge.Close() // nil: an error and no more
	if w.Pipes, err = b.connect(c); err != nil {
		return err
	}
	b.conn.SetReadDeadline(time.Now().Add(patience))
	defer b.conn.SetReadDeadline(time.Time{})
	a, err := b.hear()
	if err != nil {
		return err
	}
	if a.Started == nil {
		return errors.New("it could not be executed")
	}
	if err := stdio.WritePrelude(ctx, w.In, w.Prelude, patience); err != nil {
		return err
	}
	w.State, _ = volume.Scan(b.places), b.group.Usage() // opens what is read once the job is there
	return nil
}

// Assign gives a sandbox to one job: one with a waiting command, or that has run none.
func (b *instance) Assign(p sandbox.Profile) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.over() || b.ran || b.waiting == nil && b.profile.Prestart != nil || b.conn.Said() {
		return errGone
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	seeded, err := prestart.Assign(&b.profile, p, b.places, b.uid, b.gid)
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if seeded && b.waiting != nil {
		b.waiting.State = volume.Scan(b.places)
	}
	if b.host.Times() {
		return nil
	}
	return b.conn.Send(job.Ask{Assign: &job.Assign{}}) // start-up CPU is not charged to the job
}

// Bridge returns waldo's end of the waiting command's bridge, once.
func (b *instance) Bridge() *os.File {
	b.running.Lock()
	defer b.running.Unlock()
	if b.waiting == nil {
		return nil
	}
	return b.waiting.TakeBridge()
}

// take gives the run the command that waits in its sandbox, if that is the command that it wants; any other
// ends the waiting one.
func (r *run) take() error {
	w := r.sandbox.waiting
	if w == nil {
		return nil
	}
	r.sandbox.waiting = nil
	wanted, err := w.Matches(&r.command)
	if wanted {
		r.Pipes, r.warm = w.Pipes, true
		return nil
	}
	defer w.Close()
	if err != nil {
		return err
	}
	if err := r.sandbox.conn.Send(job.Ask{Kill: &job.Kill{}}); err != nil {
		return err
	}
	r.sandbox.conn.SetReadDeadline(time.Now().Add(patience))
	defer r.sandbox.conn.SetReadDeadline(time.Time{})
	_, err = r.sandbox.hear()
	return err
}

// Abilities satisfies sandbox.Sandbox.
func (b *instance) Abilities() sandbox.Abilities {
	return sandbox.Abilities{Bridge: b.Bridge, Spent: b.group.Spent, Lacks: b.warnings,
		Pause:  func() error { return b.group.Freeze(true) },
		Resume: func() error { return b.group.Freeze(false) }}
}

var _ sandbox.Warmer = (*instance)(nil)
