//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"sync"
	"time"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/stage"
)

// spare is PID 1 of a box that nobody has asked for yet: in namespaces and a cgroup of its own, which
// take the kernel longest of all to make, and waiting for what its box is to be. It becomes one box.
type spare struct {
	stage    *stage.Stage
	group    *cgroup.Group
	uid, gid int
}

func (s *spare) close() error { return errors.Join(s.stage.Close(), s.group.Close()) }

// roomy are the limits of a spare, in which nothing of an agent's runs, until its box says others.
const roomy = 1 << 40

// spare makes one.
func (d *Driver) spare() (_ *spare, err error) {
	machine, err := d.machine()
	if err != nil {
		return nil, err
	}
	host, err := d.cgroups()
	if err != nil {
		return nil, err
	}
	s := &spare{}
	if s.uid, s.gid, err = common.OutsideIDs(); err != nil {
		return nil, err
	}
	if s.group, err = host.New(cgroup.NewID(), cgroup.Limits{Memory: roomy, Pids: 8, MilliCPU: d.options.MilliCPU}); err != nil {
		return nil, err
	}
	joined := false
	if s.stage, joined, err = stage.SpawnInit(machine, s.uid, s.gid, s.group); err != nil {
		return nil, errors.Join(err, s.group.Close())
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

// spares are kept by a driver that lives long.
type spares struct {
	most int
	make func() (*spare, error)

	mu     sync.Mutex
	ready  []*spare
	making bool
	closed bool
	work   sync.WaitGroup
}

// take returns a spare; nil: none is ready. More are made behind the caller.
func (s *spares) take() *spare {
	if s.most <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.making && !s.closed {
		s.making = true
		s.work.Go(s.fill)
	}
	for len(s.ready) > 0 {
		one := s.ready[0]
		s.ready = s.ready[1:]
		if stage.Silent(one.stage.FD) == nil {
			return one
		}
		_ = one.close() // it has died while it waited, and nothing of it is wanted
	}
	return nil
}

// fillRest lets the box go first for which a spare was taken.
const fillRest = 3 * time.Millisecond

// fill makes spares until there are enough. Where one cannot be made, whoever needs a box makes all of
// it, and hears why that fails.
func (s *spares) fill() {
	for more := true; more; {
		time.Sleep(fillRest)
		one, err := s.make()
		s.mu.Lock()
		if err == nil && !s.closed {
			s.ready = append(s.ready, one)
			one = nil
		}
		more = err == nil && !s.closed && len(s.ready) < s.most
		s.making = more
		s.mu.Unlock()
		if one != nil {
			_ = one.close()
		}
	}
}

// close ends the spares.
func (s *spares) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	var errs []error
	for _, one := range s.ready {
		errs = append(errs, one.close())
	}
	s.ready = nil
	return errors.Join(errs...)
}
