//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/prewarm"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/zygote"
)

// prewarmed is PID 1 of a future sandbox, in namespaces and a cgroup of its own, which take the kernel longest to make.
// It waits for its sandbox's program and becomes one sandbox.
type prewarmed struct {
	stage    *initproc.Stage
	group    *cgroup.Group
	uid, gid int
}

func (s *prewarmed) silent() error { return initproc.Silent(s.stage.FD) }

func (s *prewarmed) close() error { return errors.Join(s.stage.Close(), s.group.Close()) }

// refillRest lets the sandboxes go first for which something was taken: where they come one after the other, nothing is
// prewarmed.
const refillRest = 8 * time.Millisecond

// prewarmInits returns the pool of them: o.Prewarm without a zygote, and prewarmForked of each zygote.
func (d *Driver) prewarmInits() *prewarm.Keep[*zygote.Zygote, *prewarmed] {
	n := d.options.Prewarm
	if n > 0 {
		n += zygote.Most * prewarmForked
	}
	return prewarm.New(prewarm.Options[*zygote.Zygote, *prewarmed]{
		Make:    func(_ context.Context, from *zygote.Zygote, _ bool) (*prewarmed, error) { return d.prewarmed(from) },
		Discard: (*prewarmed).close,
		Same:    func(a, b *zygote.Zygote) bool { return a == b },
		Usable:  func(_ *zygote.Zygote, s *prewarmed) bool { return s.silent() == nil },
		Over:    func(from *zygote.Zygote) bool { return from != nil && !from.Usable() },
		Each:    d.prewarmOf,
		Most:    n,
		Rest:    refillRest,
	})
}

// prewarmHolders returns the pool of user namespaces: one if inits are prewarmed at all.
func (d *Driver) prewarmHolders() *prewarm.Keep[struct{}, usernsHolder] {
	return prewarm.New(prewarm.Options[struct{}, usernsHolder]{
		Make:    func(context.Context, struct{}, bool) (usernsHolder, error) { return d.usernsHolder() },
		Discard: usernsHolder.close,
		Same:    func(_, _ struct{}) bool { return true },
		Usable:  func(_ struct{}, h usernsHolder) bool { return h.silent() == nil },
		Most:    min(d.options.Prewarm, 1),
		Rest:    refillRest,
	})
}

func (d *Driver) prewarmOf(from *zygote.Zygote) int {
	if from != nil {
		return min(d.options.Prewarm, prewarmForked)
	}
	return d.options.Prewarm
}

// takePrewarmed returns an init of the zygote, or of none, if one is ready. None is for a session, whose bound on
// processors is another.
func (d *Driver) takePrewarmed(p sandbox.Profile, from *zygote.Zygote) (*prewarmed, bool) {
	if p.Terminals {
		return nil, false
	}
	d.ready.Want(from, d.prewarmOf(from))
	return d.ready.Take(from)
}

// prewarmForked is how many are made ahead of each zygote.
const prewarmForked = 1

// unlimited are the limits of a prewarmed init, in which nothing of an agent's runs, until its sandbox says others.
const unlimited = 1 << 40

// prewarmed makes one, from a zygote where one is given.
func (d *Driver) prewarmed(from *zygote.Zygote) (_ *prewarmed, err error) {
	machine, err := d.machine()
	if err != nil {
		return nil, err
	}
	host, err := d.cgroups()
	if err != nil {
		return nil, err
	}
	s := &prewarmed{}
	if s.uid, s.gid, err = userns.OutsideIDs(); err != nil {
		return nil, err
	}
	joined := false
	limits := cgroup.Limits{Memory: unlimited, Pids: 8, MilliCPU: d.options.MilliCPU}
	if s.stage, s.group, joined, err = begin(machine, host, from, s.uid, s.gid, limits); err != nil {
		return nil, err
	}
	if err = s.stage.HandOver(); err == nil {
		err = s.stage.Ctl.SetDeadline(time.Time{})
	}
	if err == nil && !joined {
		err = s.group.JoinUnified(s.stage.Init.Pid)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// usernsHolder is a user namespace without a mapping yet, and the process that holds it. A mount is shown through it:
// it maps the files' owner to the sandbox's user.
type usernsHolder struct{ *initproc.Stage }

func (h usernsHolder) silent() error { return initproc.Silent(h.FD) }

func (h usernsHolder) close() error { return h.Close() }

// usernsHolder makes one.
func (d *Driver) usernsHolder() (h usernsHolder, err error) {
	machine, err := d.machine()
	if err != nil {
		return h, err
	}
	var l initproc.List
	l.Call("user namespace for a mount", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	l.Hint(initproc.UserNSHint)
	l.Call("report", unix.SYS_WRITE, initproc.CtlFD, l.Record(initproc.RecReady), initproc.RecordSize)
	l.Call("wait", unix.SYS_RECVFROM, initproc.CtlFD, l.Bytes(make([]byte, 8)), 1, unix.MSG_WAITALL, 0, 0)
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	if h.Stage, err = initproc.Spawn(machine, os.Geteuid(), os.Getegid()); err != nil {
		return h, err
	}
	if err = h.Send(l.LinkAt(initproc.ProgramBase)); err == nil {
		err = h.Ready(&l, nil, nil)
	}
	if err != nil {
		err = errors.Join(err, h.Close())
	}
	return h, err
}
