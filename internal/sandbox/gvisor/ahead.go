//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/gvisor/job"
)

// waiting is a command that was started before its job was there.
type waiting struct {
	sandbox.Ahead
	common.Wires
	state  common.State // of the exported places, until seeds come into them
	bridge *os.File     // waldo's end, until it is taken
}

func (w *waiting) close() {
	if w == nil {
		return
	}
	w.Wires.Close()
	if w.bridge != nil {
		_ = w.bridge.Close()
	}
}

// Warm starts the command of the profile's Ahead and returns when it has read the whole head.
func (b *box) Warm(ctx context.Context) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.over() {
		return errGone
	}
	if b.profile.Ahead == nil || b.waiting != nil {
		return errors.New("gvisor: no command to start ahead")
	}
	w := &waiting{Ahead: *b.profile.Ahead}
	b.waiting = w
	if err := b.warm(ctx, w); err != nil {
		return fmt.Errorf("gvisor: a command started ahead: %w", err)
	}
	return nil
}

func (b *box) warm(ctx context.Context, w *waiting) (err error) {
	c := sandbox.Command{Argv: w.Argv, Env: w.Env, Dir: w.Dir, Stdin: bytes.NewReader(nil)}
	if err := common.RefuseCommand(c); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if w.Bridge {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socketpair: %w", err)
		}
		w.bridge, c.Bridge = os.NewFile(uintptr(pair[0]), "bridge"), os.NewFile(uintptr(pair[1]), "bridge")
		defer c.Bridge.Close()
	}
	if w.Wires, err = b.connect(c); err != nil {
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
	if err := common.FeedHead(ctx, w.In, w.Head, patience); err != nil {
		return err
	}
	w.state, _ = common.Look(b.places), b.group.Usage() // opens what is read once the job is there
	return nil
}

// Adopt gives a box to one job: one with a waiting command, or that has run none.
func (b *box) Adopt(p sandbox.Profile) error {
	b.running.Lock()
	defer b.running.Unlock()
	if b.over() || b.ran || b.waiting == nil && b.profile.Ahead != nil || b.conn.Said() {
		return errGone
	}
	if err := common.Refuse(p); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	seeded, err := common.Adopt(&b.profile, p, b.places, b.uid, b.gid)
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if seeded && b.waiting != nil {
		b.waiting.state = common.Look(b.places)
	}
	if b.host.Times() {
		return nil
	}
	return b.conn.Send(job.Ask{Adopt: &job.Adopt{}}) // what it took to get this far is nobody's
}

// Bridge returns waldo's end of the waiting command's bridge, once.
func (b *box) Bridge() *os.File {
	b.running.Lock()
	defer b.running.Unlock()
	if b.waiting == nil {
		return nil
	}
	f := b.waiting.bridge
	b.waiting.bridge = nil
	return f
}

// take gives the run the command that waits in its box, if that is the command that it wants; any
// other ends the waiting one.
func (r *run) take() error {
	w := r.box.waiting
	if w == nil {
		return nil
	}
	r.box.waiting = nil
	if common.Wants(&r.command, w.Ahead, w.bridge) {
		w.bridge = nil // whoever asked for the command asked for its bridge
		r.Wires, r.warm = w.Wires, true
		return nil
	}
	defer w.close()
	if w.Bridge && w.bridge == nil {
		return errors.New("the bridge was taken for another command than this one")
	}
	if err := r.box.conn.Send(job.Ask{Kill: &job.Kill{}}); err != nil {
		return err
	}
	r.box.conn.SetReadDeadline(time.Now().Add(patience))
	defer r.box.conn.SetReadDeadline(time.Time{})
	_, err := r.box.hear()
	return err
}

// Pause stops every process of the box where it stands.
func (b *box) Pause() error { return b.group.Freeze(true) }

// Resume lets the processes of the box go on.
func (b *box) Resume() error { return b.group.Freeze(false) }

var (
	_ sandbox.Warmer  = (*box)(nil)
	_ sandbox.Bridged = (*box)(nil)
	_ sandbox.Pauser  = (*box)(nil)
)
