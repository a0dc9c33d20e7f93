//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/reach"
)

// A command that was started ahead is held in the call that ends it. So its answer does not wait until the kernel has
// taken its memory and the sandbox apart. Its status is that of the call: exit_group, or EndSignal from an
// interpreter whose own path to exit_group is long.

// hold asks for the command to be held when it ends, where everything can be counted without it.
func (r *run) hold() bool {
	b := r.sandbox
	if !r.warm || r.leader == 0 && !b.forked || b.notice == nil || !b.host.Pids() || !b.host.Memory() || !b.host.Times() {
		return false
	}
	b.notice.OnExit(r.ends)
	return true
}

// runInline runs a command in the caller's thread, if all its input is in memory. It reports whether the command has
// ended and is held. A command that outlasts the first measurement, or for which PID 1 sends a message, continues as
// any other.
func (r *run) runInline() bool {
	b := r.sandbox
	if b.notice.FD() < 0 || !r.FeedWhole(r.command) {
		return false
	}
	r.inline = true
	end := r.began.Add(min(look, b.profile.Limits.Wall))
	r.Watch(end, r.out, r.err, []int{b.notice.FD(), b.stage.FD}, func(i int) bool {
		if i == 0 {
			b.notice.Answer()
		}
		return i == 1 || r.held.Load() != nil
	})
	if r.held.Load() == nil {
		r.inline = false
		return false
	}
	r.Pipes.Close()
	b.held = true
	return true
}

// ends holds the command's own process, by its first thread, if only PID 1 and the interpreter's own threads are left
// in the sandbox. Then no code of the job runs any more.
func (r *run) ends(pid, status int) bool {
	if r.leader == 0 {
		r.find(pid)
	}
	if pid != r.leader || r.sandbox.leader == nil || !r.alone() {
		return false
	}
	if r.sandbox.stands == nil {
		r.sandbox.stands = procstat.OpenStat(pid)
	}
	procstat.WaitBlocked(r.sandbox.stands)
	r.held.Store(&ending{reported: true, status: syscall.WaitStatus(status << 8)})
	if !r.inline {
		_ = r.sandbox.stage.Ctl.SetReadDeadline(time.Now()) // ends the wait for PID 1's report
	}
	return true
}

// find takes a process for the command if it is the first that PID 1 has made, which in there has the
// number 2: of a command that hurried it was not known before.
func (r *run) find(pid int) {
	if !r.sandbox.forked || procstat.NSPID(pid) != 2 {
		return
	}
	if p, err := os.FindProcess(pid); err == nil {
		r.leader, r.sandbox.leader = pid, p
	}
}

// alone reports whether the sandbox holds only PID 1 and threads of the command that existed before its job. Those
// are an interpreter's, which run no code of the job.
func (r *run) alone() bool {
	n := r.sandbox.group.PidsNow()
	if n == 2 {
		return true
	}
	threads := r.sandbox.threads
	return n == int64(1+len(threads)) && !slices.ContainsFunc(threads, procstat.Exited)
}

// killThreads ends a held command that has other threads: the job decides what they would run.
func (b *instance) killThreads() {
	if b.held && len(b.threads) > 1 {
		_ = b.leader.Kill() // reapHeld reports an error
	}
}

// reapHeld ends a held command, which must not run on, and takes PID 1's report of it.
func (b *instance) reapHeld() error {
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
	_ = b.stage.Ctl.SetReadDeadline(time.Now().Add(initproc.Patience))
	r, err := b.stage.Receive()
	if err == nil && r.Kind != initproc.RecExit {
		err = errors.New("namespace: PID 1 does not report an end that was seen")
	}
	return errors.Join(err, b.stage.Ctl.SetReadDeadline(time.Time{}))
}

// Spent returns what everything in the sandbox has used so far, by /proc where no cgroup counts it.
func (b *instance) Spent() sandbox.Use {
	use := b.group.Spent()
	if b.host.Times() && b.host.Memory() {
		return use
	}
	tree := procstat.Tree(b.init.Pid)
	if !b.host.Times() {
		use.CPU = tree.CPU
	}
	if !b.host.Memory() {
		use.Memory = tree.Memory
	}
	return use
}

// Reach returns what connects to ports of the sandbox whose PID 1 has that number outside, whichever waldo has it.
func (d *Driver) Reach(pid int) (sandbox.Reach, error) {
	program, err := d.machine()
	if err != nil {
		return nil, err
	}
	return reach.Open(program, pid)
}
