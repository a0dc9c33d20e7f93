package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"waldo/internal/core/policy"
	"waldo/internal/executor/protect"
	"waldo/internal/storage/safefile"
)

// mountNotes is the folder of the state directory with a locked note for each run that has writable mounts. A waldo
// that is killed leaves it, and the next one takes out what the run has planted.
const mountNotes = "mounts"

// note is what a run with writable mounts must find again.
type note struct {
	Source             string
	Protect, Unprotect []string
	Before             []protect.Found
}

// noted writes the note of a run. forget removes it.
func (o Options) noted(state string, d policy.Decision) (forget func(), err error) {
	var all []note
	for _, m := range o.mounts {
		if m.Writable && m.Aside == "" {
			all = append(all, note{m.Source, d.Contract.Protect, d.Contract.Unprotect, m.before})
		}
	}
	if state == "" || len(all) == 0 {
		return func() {}, nil
	}
	dir := filepath.Join(state, mountNotes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, d.Call.ID), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	forget = func() { _ = errors.Join(os.Remove(f.Name()), f.Close()) }
	locked, err := safefile.TryLock(f, false)
	if err == nil && !locked {
		err = fmt.Errorf("%s is locked by another waldo", f.Name())
	}
	if err == nil {
		err = json.NewEncoder(f).Encode(all)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		forget()
	}
	return forget, err
}

// SweepKilled takes out the protected names that runs of killed waldos have planted below their writable mounts.
func SweepKilled(state string) error {
	dir := filepath.Join(state, mountNotes)
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, n := range names {
		if n.IsDir() {
			continue // what was moved away
		}
		err = errors.Join(err, sweepNote(filepath.Join(dir, n.Name()), n.Name()))
	}
	return err
}

func sweepNote(path, call string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // its run has ended meanwhile
		}
		return err
	}
	defer f.Close()
	if locked, err := safefile.TryLock(f, false); !locked || err != nil {
		return err // its run is under way
	}
	var all []note
	if err := json.NewDecoder(f).Decode(&all); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return os.Remove(path) // waldo was killed before the run
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, n := range all {
		err = errors.Join(err, n.takeOut(call, filepath.Join(filepath.Dir(path), "held")))
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// takeOut moves what appeared to a folder: a person can have written it since.
func (n note) takeOut(call, held string) error {
	rules, err := protect.New(n.Protect, n.Unprotect)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(n.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the person has removed the folder
	}
	if err != nil {
		return err
	}
	defer root.Close()
	found, err := rules.Appeared(root, n.Before)
	for _, f := range found {
		from, to := filepath.Join(n.Source, f.Path), filepath.Join(held, call, f.Path)
		bad := os.MkdirAll(filepath.Dir(to), 0o700)
		if bad == nil && os.Rename(from, to) != nil { // another file system
			if bad = copied(root, f, to); bad == nil {
				bad = protect.Remove(root, f.Path)
			}
		}
		if err = errors.Join(err, bad); bad == nil {
			slog.Warn("a run whose waldo was killed had planted a protected name, which was moved away", "call", call,
				"path", from, "to", to, "why", f.Row.Reason)
		}
	}
	return err
}

// copied copies a file, link or folder.
func copied(root *os.Root, f protect.Found, to string) error {
	switch {
	case f.Mode.IsDir():
		below, err := root.OpenRoot(f.Path)
		if err != nil {
			return err
		}
		defer below.Close()
		return os.CopyFS(to, below.FS())
	case f.Mode.Type() == fs.ModeSymlink:
		link, err := root.Readlink(f.Path)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	}
	b, err := root.ReadFile(f.Path)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}
