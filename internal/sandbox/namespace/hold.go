//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/stage"
)

// A command that was started ahead is held in the call that ends it, so that its answer does not
// wait for the kernel to take its memory and the box apart. Its status is that of the call: exit_group,
// or the one by which an interpreter asks for its end whose own way to exit_group is long.

// hold asks for the command to be held when it ends, where everything can be counted without it.
func (r *run) hold() bool {
	b := r.box
	if !r.warm || r.leader == 0 && !b.forked || b.notice == nil || !b.host.Pids() || !b.host.Memory() || !b.host.Times() {
		return false
	}
	b.notice.OnExit(r.ends)
	return true
}

// straightMost is how much input fits into a pipe of the usual size.
const straightMost = 32 << 10

// straight runs a command that has all its input at once, in the caller's thread: to wake others takes
// as long as such a command. It reports whether the command has ended and is held. One that takes longer
// than until the first look at it, or of which PID 1 speaks, goes on as any other.
func (r *run) straight() bool {
	b := r.box
	input, ok := r.command.Stdin.(interface {
		io.WriterTo
		Len() int
	})
	if !ok || input.Len() > straightMost || r.command.Stdout != nil || r.command.Stderr != nil || b.notice.FD() < 0 {
		return false
	}
	if !common.FeedNow(r.stdin, input) { // a user with many pipes is given small ones
		return false
	}
	r.inline, r.stdin = true, nil
	end := r.began.Add(min(look, b.profile.Limits.Wall))
	at := []unix.PollFd{{Fd: int32(r.outFD)}, {Fd: int32(r.errFD)}, {Fd: int32(b.notice.FD())}, {Fd: int32(b.stage.FD)}}
	for i := range at {
		at[i].Events = unix.POLLIN
	}
	for left := time.Until(end); left > 0 && at[3].Revents == 0; left = time.Until(end) {
		wait := unix.NsecToTimespec(int64(left))
		if _, err := unix.Ppoll(at, &wait, nil); err != nil && err != unix.EINTR {
			break
		}
		r.read(at)
		if at[2].Revents == 0 {
			continue
		}
		if b.notice.Answer(); r.held.Load() == nil {
			continue
		}
		at[0].Revents, at[1].Revents = unix.POLLIN, unix.POLLIN
		r.read(at)
		r.wires.close()
		b.held = true
		return true
	}
	r.inline = false
	return false
}

// read takes what stands in the streams that have something.
func (r *run) read(at []unix.PollFd) {
	for i, s := range r.streams() {
		if *s.end >= 0 && at[i].Revents != 0 && !s.to.Now(*s.end) {
			closeEnd(s.end)
			at[i].Fd = -1
		}
	}
}

// ends holds a process that is the command's own, by its first thread, with nobody else in the box
// but PID 1 and the interpreter's own threads: then no code of the job's runs any more.
func (r *run) ends(pid, status int) bool {
	if r.leader == 0 {
		r.find(pid)
	}
	if pid != r.leader || r.box.leader == nil || !r.alone() {
		return false
	}
	common.Still(pid)
	r.held.Store(&ending{reported: true, status: syscall.WaitStatus(status << 8)})
	if !r.inline {
		_ = r.box.stage.Ctl.SetReadDeadline(time.Now()) // ends the wait for PID 1's report
	}
	return true
}

// find takes a process for the command if it is the first that PID 1 has made, which in there has the
// number 2: of a command that hurried it was not known before.
func (r *run) find(pid int) {
	if !r.box.forked || common.Inside(pid) != 2 {
		return
	}
	if p, err := os.FindProcess(pid); err == nil {
		r.leader, r.box.leader = pid, p
	}
}

// alone reports whether nobody is in the box but PID 1 and threads of the command that were there
// before its job: those of an interpreter, which run nothing of the job's.
func (r *run) alone() bool {
	n := r.box.group.PidsNow()
	if n == 2 {
		return true
	}
	threads := r.box.threads
	return n == int64(1+len(threads)) && !slices.ContainsFunc(threads, common.Gone)
}

// settle ends a held command, which must not run on, and takes PID 1's report of it.
func (b *box) settle() error {
	if b.notice != nil {
		b.notice.OnExit(nil)
	}
	if !b.held {
		return nil
	}
	b.held = false
	if err := b.leader.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("namespace: a held command: %w", err)
	}
	b.notice.Release()
	_ = b.stage.Ctl.SetReadDeadline(time.Now().Add(stage.Patience))
	r, err := b.stage.Receive()
	if err == nil && r.Kind != stage.RecExit {
		err = errors.New("namespace: PID 1 does not report an end that was seen")
	}
	return errors.Join(err, b.stage.Ctl.SetReadDeadline(time.Time{}))
}

// Pause stops every process of the box where it stands.
func (b *box) Pause() error { return b.group.Freeze(true) }

// Resume lets the processes of the box go on.
func (b *box) Resume() error { return b.group.Freeze(false) }
