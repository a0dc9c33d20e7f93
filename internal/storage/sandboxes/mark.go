package sandboxes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// marks is where the workspaces are noted that no sandbox names, not yet or no longer.
const marks = "workspaces"

// mark marks workspaces while this process works on them. The next Sweep deletes marked ones that no sandbox names,
// once no process holds the mark. The returned function removes the marks, except those of workspaces that exist
// without a sandbox.
func (m *Manager) mark(workspaces ...string) (done func(), err error) {
	var files []*os.File
	done = func() {
		named, err := m.Workspaces(context.Background())
		for _, f := range files {
			note := strings.TrimSuffix(f.Name(), ".new")
			w := marked(note)
			if _, gone := os.Lstat(m.store.Path("workspaces", w)); err == nil && named[w] || errors.Is(gone, fs.ErrNotExist) {
				_ = os.Remove(note)
			}
			_ = f.Close()
		}
	}
	for _, w := range workspaces {
		f, err := m.announce(marks, w+"."+id.New(id.Record))
		if err != nil {
			done()
			return nil, err
		}
		files = append(files, f)
	}
	return done, nil
}

// marked returns the workspace that a note is about.
func marked(note string) string {
	w, _, _ := strings.Cut(filepath.Base(note), ".")
	return w
}

// sweepMarks deletes the workspaces that processes had noted which work on them no more, but for those that
// are a sandbox's.
func (m *Manager) sweepMarks(ctx context.Context) error {
	notes, err := filepath.Glob(m.store.Path("run", marks, "w_*"))
	for _, n := range notes {
		if !strings.HasSuffix(n, ".new") {
			err = errors.Join(err, m.sweepMark(ctx, n))
		} else if st, serr := os.Lstat(n); serr == nil && time.Since(st.ModTime()) > time.Minute {
			err = errors.Join(err, os.Remove(n)) // who was making it was ended, and had done nothing yet
		}
	}
	return err
}

func (m *Manager) sweepMark(ctx context.Context, note string) error {
	w := marked(note)
	f, err := os.OpenFile(note, os.O_RDWR, 0)
	if err != nil || !id.Is(id.Workspace, w) {
		return nil // taken back meanwhile
	}
	defer f.Close()
	if ok, err := safefile.TryLock(f, false); err != nil || !ok {
		return err
	}
	named, err := m.Workspaces(ctx) // after the mark is free, so that workspaces that sandboxes took meanwhile are in it
	if err != nil {
		return err
	}
	if !named[w] && m.worked(w, note) {
		return nil // another process works on it; the next Sweep checks again
	}
	if !named[w] {
		err = os.RemoveAll(m.store.Path("workspaces", w))
	}
	return errors.Join(err, os.Remove(note))
}

// worked reports whether a process works on a workspace, but for its own note.
func (m *Manager) worked(w, own string) bool {
	notes, _ := filepath.Glob(m.store.Path("run", marks, w+".*"))
	return slices.ContainsFunc(notes, func(note string) bool {
		f, err := os.OpenFile(note, os.O_RDWR, 0)
		if err != nil || note == own {
			return false
		}
		defer f.Close()
		ok, err := safefile.TryLock(f, false)
		return err != nil || !ok
	})
}

// sweepRuns deletes what commands have left behind in run/ of sandboxes that are no more.
func (m *Manager) sweepRuns(ctx context.Context) error {
	dirs, err := filepath.Glob(m.store.Path("run", "s_*"))
	if err != nil || len(dirs) == 0 {
		return err
	}
	kept, err := m.store.List(ctx, bucket) // read afterwards, so that newer ones are in it
	there := map[string]bool{}
	for k, text := range kept {
		s, derr := decode(k, text)
		err = errors.Join(err, derr)
		there[s.ID] = true
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if name := filepath.Base(d); !there[name] && len(m.live(name)) == 0 {
			err = errors.Join(err, os.RemoveAll(d))
		}
	}
	return err
}
