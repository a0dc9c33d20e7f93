//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/prewarm"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/zygote"
)

// spare is PID 1 of a future sandbox, in namespaces and a cgroup of its own, which take the kernel longest to make.
// It waits for its sandbox's program and becomes one sandbox.
type spare struct {
	stage    *initproc.Stage
	group    *cgroup.Group
	uid, gid int
}

func (s *spare) silent() error { return initproc.Silent(s.stage.FD) }

func (s *spare) close() error { return errors.Join(s.stage.Close(), s.group.Close()) }

// refillRest lets the sandboxes go first for which something was taken: where they come one after the other, nothing is
// prewarmed.
const refillRest = 8 * time.Millisecond

// prewarmInits returns the spares: o.Spares without a zygote, and sparesForked of each zygote.
func (d *Driver) prewarmInits() *prewarm.Keep[*zygote.Zygote, *spare] {
	n := d.options.Spares
	if n > 0 {
		n += zygote.Most * sparesForked
	}
	return prewarm.New(prewarm.Options[*zygote.Zygote, *spare]{
		Make:    func(_ context.Context, from *zygote.Zygote, _ bool) (*spare, error) { return d.spare(from) },
		Discard: (*spare).close,
		Same:    func(a, b *zygote.Zygote) bool { return a == b },
		Usable:  func(_ *zygote.Zygote, s *spare) bool { return s.silent() == nil },
		Over:    func(from *zygote.Zygote) bool { return from != nil && !from.Usable() },
		Each:    d.sparesOf,
		Most:    n,
		Rest:    refillRest,
	})
}

// prewarmHolders returns the holders: one where there are spares.
func (d *Driver) prewarmHolders() *prewarm.Keep[struct{}, holder] {
	return prewarm.New(prewarm.Options[struct{}, holder]{
		Make:    func(context.Context, struct{}, bool) (holder, error) { return d.holder() },
		Discard: holder.close,
		Same:    func(_, _ struct{}) bool { return true },
		Usable:  func(_ struct{}, h holder) bool { return h.silent() == nil },
		Most:    min(d.options.Spares, 1),
		Rest:    refillRest,
	})
}

func (d *Driver) sparesOf(from *zygote.Zygote) int {
	if from != nil {
		return min(d.options.Spares, sparesForked)
	}
	return d.options.Spares
}

// takeSpare returns a spare of the zygote, or of none, if one is ready.
func (d *Driver) takeSpare(from *zygote.Zygote) (*spare, bool) {
	d.spares.Want(from, d.sparesOf(from))
	return d.spares.Take(from)
}

// sparesForked is how many are made ahead of each zygote.
const sparesForked = 1

// unlimited are the limits of a spare, in which nothing of an agent's runs, until its sandbox says others.
const unlimited = 1 << 40

// spare makes one, from a zygote where one is given.
func (d *Driver) spare(from *zygote.Zygote) (_ *spare, err error) {
	machine, err := d.machine()
	if err != nil {
		return nil, err
	}
	host, err := d.cgroups()
	if err != nil {
		return nil, err
	}
	s := &spare{}
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

// holder is a user namespace without a mapping yet, and the process that holds it. A mount is shown through it: it
// maps the files' owner to the sandbox's user.
type holder struct{ *initproc.Stage }

func (h holder) silent() error { return initproc.Silent(h.FD) }

func (h holder) close() error { return h.Close() }

// holder makes one.
func (d *Driver) holder() (h holder, err error) {
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
