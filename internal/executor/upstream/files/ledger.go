package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
)

// A Ledger says which files of a server's writable folders have changed.
type Ledger struct {
	mu     sync.Mutex
	places []watched
	seen   map[string]stamp
}

type watched struct {
	root *os.Root
	at   string // in the sandbox
}

// stamp tells one state of a file from another.
type stamp struct {
	inode         uint64
	size, changed int64 // changed: nanoseconds; on Linux the time that no program can set
}

// ErrMany reports that a folder has more entries than a Ledger reads.
var ErrMany = errors.New("the writable folders have too many entries: not every write is listed")

// Open begins a Ledger of the writable ones among the mounts, with their current files; nil if there are none.
func Open(mounts []Mount) (*Ledger, error) {
	l := &Ledger{}
	for _, m := range mounts {
		if !m.Writable {
			continue
		}
		root, err := os.OpenRoot(m.Source)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.places = append(l.places, watched{root, m.Target})
	}
	if len(l.places) == 0 {
		return nil, nil
	}
	if _, err := l.Written(); err != nil && !errors.Is(err, ErrMany) {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Written returns the files that are new or other than the last time, as the sandbox names them. With
// ErrMany they are those among the first entries alone.
func (l *Ledger) Written() (names []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, n := map[string]stamp{}, 0
	for _, p := range l.places {
		werr := fs.WalkDir(p.root.FS(), ".", func(at string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone meanwhile, or not for waldo to read
			}
			if n++; n > maxLooked {
				return ErrMany
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				now[path.Join(p.at, at)] = stampOf(info)
			}
			return nil
		})
		err = errors.Join(err, werr)
	}
	for name, st := range now {
		if l.seen != nil && l.seen[name] != st {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	l.seen = now
	return names, err
}

// Close lets go of the folders.
func (l *Ledger) Close() error {
	var errs []error
	for _, p := range l.places {
		errs = append(errs, p.root.Close())
	}
	return errors.Join(errs...)
}
