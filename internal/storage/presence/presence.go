// Package presence tells the waldo processes at work on a state directory from those that have ended.
package presence

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// Folder holds a locked file for each waldo at work, in the state directory. A question names the
// file: it shows to others whether the session that asked is still there.
const Folder = "askers"

// Process is the locked file of this process.
type Process struct {
	Name string
	file *os.File
}

// New makes and locks the file. If it cannot be locked, the result is nil, and sessions count as lasting.
func New(state string) (*Process, error) {
	dir := filepath.Join(state, Folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Process{Name: id.New("q_")}
	f, err := os.OpenFile(filepath.Join(dir, a.Name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	a.file = f
	if locked, err := safefile.TryLock(f, false); !locked || err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return a, nil
}

// Close ends the claim that this process is at work.
func (a *Process) Close() error { return errors.Join(a.file.Close(), os.Remove(a.file.Name())) }

// Gone reports whether the process that made the file has ended. A process that was killed leaves
// the file, and no lock on it.
func Gone(state string) func(name string) bool {
	return func(name string) bool {
		if !id.Is("q_", name) {
			return true
		}
		path := filepath.Join(state, Folder, name)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
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
func Killed(state string) (out []*Process) {
	dir := filepath.Join(state, Folder)
	all, _ := os.ReadDir(dir) // no folder: nothing was killed
	for _, entry := range all {
		f, err := os.OpenFile(filepath.Join(dir, entry.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if locked, err := safefile.TryLock(f, false); !locked || err != nil || !id.Is("q_", entry.Name()) {
			_ = f.Close()
			continue
		}
		out = append(out, &Process{Name: entry.Name(), file: f})
	}
	return out
}
