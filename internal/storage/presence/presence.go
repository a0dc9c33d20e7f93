// Package presence tells the waldo processes at work on a state directory from those that have ended.
package presence

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Folder holds a locked file for each waldo at work, in the state directory. A question names the
// file: it shows to others whether the session that asked is still there.
const Folder = "askers"

// Process is the locked file of this process. In a database that other hosts share, it has a lease, too.
type Process struct {
	Name string
	file *os.File
	s    *database.Store
	stop chan struct{}
	done chan struct{}
	left bool
}

// Lease is how long a process of another host counts as at work after it last renewed its lease.
const Lease = 45 * time.Second

// bucket holds the leases, by process.
const bucket = "present"

// New makes and locks the file.
func New(s *database.Store) (*Process, error) {
	if err := os.MkdirAll(s.Path(Folder), 0o700); err != nil {
		return nil, err
	}
	a := &Process{Name: id.New("q_"), s: s}
	f, err := safefile.Claim(s.Path(Folder, a.Name))
	if err != nil {
		return nil, err
	}
	a.file = f
	if s.Shared() {
		if err := s.Renew(context.Background(), bucket, a.Name); err != nil {
			return nil, errors.Join(err, safefile.Unclaim(f))
		}
		a.stop, a.done = make(chan struct{}), make(chan struct{})
		go a.renew()
	}
	return a, nil
}

// renew renews the lease until Close.
func (a *Process) renew() {
	defer close(a.done)
	t := time.NewTicker(Lease / 4)
	defer t.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-t.C:
			if err := a.s.Renew(context.Background(), bucket, a.Name); err != nil {
				slog.Warn("other hosts may take this waldo for ended", "why", err)
			}
		}
	}
}

// Leave has Close leave the file, so that the process counts as killed: something of it is not recorded. Nil has none.
func (a *Process) Leave() {
	if a != nil {
		a.left = true
	}
}

// Close ends the claim that this process is at work.
func (a *Process) Close() (err error) {
	if a.left {
		err = a.file.Close()
	} else {
		err = safefile.Unclaim(a.file)
	}
	if a.stop != nil {
		close(a.stop)
		<-a.done
	}
	if a.s.Shared() {
		err = errors.Join(err, a.s.Delete(context.Background(), bucket, a.Name))
	}
	return err
}

// All returns the names of the processes that have a file here, or a lease.
func All(ctx context.Context, s *database.Store) (names []string, err error) {
	all, err := os.ReadDir(s.Path(Folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range all {
		names = append(names, f.Name())
	}
	if !s.Shared() {
		return names, nil
	}
	leases, err := s.List(ctx, bucket)
	for name := range leases {
		names = append(names, name)
	}
	return names, err
}

// Gone reports whether the process that made the file has ended. A process that was killed leaves the file, and no lock
// on it. A process of another host has ended when its lease is over, and has not while that cannot be read.
func Gone(s *database.Store) func(name string) bool {
	return func(name string) bool {
		if !id.Is("q_", name) {
			return true
		}
		path := s.Path(Folder, name)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) && s.Shared() {
			fresh, err := s.Fresh(context.Background(), bucket, name, Lease)
			return err == nil && !fresh
		}
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		defer f.Close()
		locked, err := safefile.TryLock(f, false)
		if !locked || err != nil {
			return false
		}
		return true
	}
}

// Killed returns the files of processes that ended without closing theirs, locked for the caller, who closes them.
// Those that another process has locked are left to it.
func Killed(s *database.Store) (out []*Process) {
	dir := s.Path(Folder)
	all, _ := os.ReadDir(dir) // no folder: nothing was killed
	for _, entry := range all {
		f, err := os.OpenFile(filepath.Join(dir, entry.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		locked, err := safefile.TryLock(f, false)
		if !locked || err != nil || !safefile.Named(f) || !id.Is("q_", entry.Name()) {
			_ = f.Close()
			continue
		}
		out = append(out, &Process{Name: entry.Name(), file: f, s: s})
	}
	return out
}
