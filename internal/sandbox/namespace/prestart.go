//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/prestart"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// waiting is a command that was started before its job was there.
type waiting struct {
	prestart.Waiting
	job    *initproc.List
	leader int // the command's process; 0: not known
}

// Warm starts the command of the profile's Prestart and returns when it has read the whole head; one that
// hurries, at once.
func (b *instance) Warm(ctx context.Context) error { return b.warm(ctx, 0) }

func (b *instance) warm(ctx context.Context, fast int) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.stage == nil {
		return initproc.ErrGone
	}
	if b.profile.Prestart == nil || b.waiting != nil {
		return fmt.Errorf("namespace: no command to start ahead")
	}
	w := &waiting{Waiting: prestart.Waiting{Prestart: *b.profile.Prestart}}
	c, err := w.Command()
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	defer c.Bridge.Close() // nil: an error and no more
	var program []byte
	head := w.Prelude
	if b.forked { // its head it has read
		head = headOf(c, fast)
	}
	if w.job, program, err = b.program(c, b.forked); err == nil {
		w.Pipes, err = b.connect(c, program)
	}
	if err != nil {
		w.Close()
		return err
	}
	b.waiting = w
	if b.forked && fast > 0 { // its job need not wait until it waits
		w.State = volume.Scan(b.places)
		_, err = io.WriteString(w.In, head)
		return errors.Join(err, b.rest())
	}
	if err := stdio.WritePrelude(ctx, w.In, head, initproc.Patience); err != nil {
		return err
	}
	if pids := procstat.Children(b.init.Pid); len(pids) == 1 {
		w.leader = pids[0]
		if b.leader, err = os.FindProcess(w.leader); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	b.threads, b.stands, w.State = procstat.Threads(w.leader), procstat.OpenStat(w.leader), volume.Scan(b.places)
	_, _ = b.group.Usage(), b.group.PidsNow() // opens what is read once the job is there
	return b.rest()
}

// rest stops the listener of a command that waits; listen starts it again.
func (b *instance) rest() error {
	if b.notice == nil {
		return nil
	}
	return b.notice.Rest()
}

func (b *instance) listen() {
	if b.notice != nil {
		b.notice.Serve()
	}
}

// Assign gives a sandbox to one job: one with a waiting command, or that has run none.
func (b *instance) Assign(p sandbox.Profile) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.stage == nil || b.ran || b.waiting == nil && b.profile.Prestart != nil {
		return initproc.ErrGone
	}
	if err := refuse(p); err != nil {
		return err
	}
	listener := -1
	if b.notice != nil { // of a command that waits and asks for something: only one that ends does
		listener = b.notice.FD()
	}
	if err := initproc.Silent(b.stage.FD, listener); err != nil {
		return err
	}
	seeded, err := prestart.Assign(&b.profile, p, b.places, b.uid, b.gid)
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if seeded && b.waiting != nil {
		b.waiting.State = volume.Scan(b.places)
	}
	if !b.host.Times() {
		b.spent = procstat.Tree(b.init.Pid).CPU // start-up CPU is not charged to the job
	}
	return nil
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

// take gives the run the command that waits in its sandbox, if that is the command that it wants; any other ends the
// waiting one.
func (r *run) take() error {
	w := r.sandbox.waiting
	if w == nil {
		return nil
	}
	r.sandbox.waiting = nil
	wanted, err := w.Matches(&r.command)
	if wanted {
		r.Pipes, r.job, r.leader, r.warm = w.Pipes, w.job, w.leader, true
		return nil
	}
	defer w.Close()
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	r.sandbox.listen()
	w.In.Close()
	first := &run{sandbox: r.sandbox, job: w.job}
	_ = r.sandbox.stage.Ctl.SetReadDeadline(time.Now().Add(initproc.Patience))
	_, err = first.wait()
	_ = r.sandbox.stage.Ctl.SetReadDeadline(time.Time{})
	if first.killed.Load() {
		return initproc.ErrGone
	}
	return err
}
