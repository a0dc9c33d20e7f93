package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/executor/protect"
	"waldo/internal/model/contract"
	"waldo/internal/storage/safefile"
)

// mountNotes is the folder of the state directory with a locked note for each run that has writable mounts. A waldo
// that is killed leaves it, and the next one takes out what the run has planted.
const mountNotes = "mounts"

// maxHeld is how many bytes of one planted name are kept.
const maxHeld = 64 << 20

// note is what a run with writable mounts must find again.
type note struct {
	Source             string
	Device, Inode      uint64 // of the folder; a note of an earlier waldo has none
	Protect, Unprotect []string
	Before             []protect.Found
}

// start is held by a run with writable mounts from before it looks for protected names until its note is written. Runs of
// one state directory start one after the other, so that each knows what those under way have found.
type start struct {
	lock   *os.File
	others []note
}

// end lets the next run start.
func (s *start) end() {
	if s != nil && s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// starts waits for the starts of others, and reads the notes of runs under way. What killed waldos left is taken out.
func starts(ctx context.Context, state string) (s *start, err error) {
	dir := filepath.Join(state, mountNotes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".start"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	s = &start{lock: lock}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if err := safefile.LockWithin(ctx, lock); err != nil {
		return s, err
	}
	names, err := notes(state)
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := sweepNote(at, name); err != nil {
			slog.Warn("what a killed run planted could not all be taken out", "why", err)
		}
		b, err := os.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its run has ended, and what it planted is taken out
		}
		var all []note
		if err == nil {
			err = json.Unmarshal(b, &all)
		}
		if err != nil {
			return s, err
		}
		s.others = append(s.others, all...)
	}
	return s, err
}

// narrow drops from what a run found at its start the names that runs under way did not find at theirs: those have
// appeared. Runs of overlapping folders must protect the same names.
func (s *start) narrow(m *liveMount, k contract.Contract) error {
	for _, n := range s.others {
		if !contract.Within(m.Source, n.Source) && !contract.Within(n.Source, m.Source) {
			continue
		}
		if !slices.Equal(n.Protect, k.Protect) || !slices.Equal(n.Unprotect, k.Unprotect) {
			return fmt.Errorf("a run under way writes to %s under other protected names", n.Source)
		}
		m.before = slices.DeleteFunc(m.before, func(f protect.Found) bool {
			full := filepath.Join(m.Source, f.Path)
			return contract.Within(full, n.Source) && !slices.ContainsFunc(n.Before, func(o protect.Found) bool {
				old := filepath.Join(n.Source, o.Path)
				return full == old && f.Mode.Type() == o.Mode.Type() && f.Link == o.Link || full != old && contract.Within(full, old)
			})
		})
	}
	return nil
}

// noted writes the note of a run. forget removes it.
func (o Options) noted(state string, d policy.Decision) (forget func(), err error) {
	var all []note
	for _, m := range o.mounts {
		if m.Writable && m.Aside == "" {
			device, inode := identity(m.root)
			all = append(all, note{m.Source, device, inode, d.Contract.Protect, d.Contract.Unprotect, m.before})
		}
	}
	if state == "" || len(all) == 0 {
		return func() {}, nil
	}
	dir := filepath.Join(state, mountNotes)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := safefile.Claim(filepath.Join(dir, d.Call.ID))
	if err != nil {
		return nil, err
	}
	forget = func() { _ = safefile.Unclaim(f) }
	if err = json.NewEncoder(f).Encode(all); err == nil {
		err = f.Sync()
	}
	if err != nil {
		forget()
	}
	return forget, err
}

// SweepKilled takes out the protected names that runs of killed waldos have planted below their writable mounts.
func SweepKilled(state string) error {
	names, err := notes(state)
	for _, name := range names {
		err = errors.Join(err, sweepNote(filepath.Join(state, mountNotes, name), name))
	}
	return err
}

// notes lists the notes of a state directory, each named by the call of its run.
func notes(state string) (names []string, err error) {
	all, err := os.ReadDir(filepath.Join(state, mountNotes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, n := range all {
		if !n.IsDir() && !strings.HasPrefix(n.Name(), ".") { // a folder has what was moved away; .start is a lock
			names = append(names, n.Name())
		}
	}
	return names, err
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
	if locked, err := safefile.TryLock(f, false); !locked || err != nil || !safefile.Named(f) {
		return err // its run is under way, or has ended
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

// takeOut moves what appeared to a folder: a person can have written it since. It is removed also where it cannot be
// copied.
func (n note) takeOut(call, held string) error {
	rules, err := protect.New(n.Protect, n.Unprotect)
	if err != nil {
		return err
	}
	root, err := safefile.Exact(n.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the person has removed the folder
	}
	if err == nil {
		defer root.Close()
	}
	device, inode := identity(root)
	if errors.Is(err, safefile.ErrChanged) || err == nil && n.Inode != 0 && (device != n.Device || inode != n.Inode) {
		slog.Warn("the folder of a run whose waldo was killed is not at its place any more: look for protected names that it planted",
			"call", call, "folder", n.Source)
		return nil
	}
	if err != nil {
		return err
	}
	found, err := rules.At(n.Source).Appeared(root, n.Before)
	for _, f := range found {
		to := filepath.Join(held, call)
		left, bad := safefile.CopyTree(root, f.Path, to, maxHeld)
		if bad != nil {
			left = append(left, bad.Error())
		}
		if bad = protect.Remove(root, f.Path); bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		slog.Warn("a run whose waldo was killed had planted a protected name, which was moved away", "call", call,
			"path", filepath.Join(n.Source, f.Path), "to", filepath.Join(to, f.Path), "without", left, "why", f.Row.Reason)
	}
	return err
}
