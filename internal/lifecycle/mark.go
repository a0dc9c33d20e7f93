package lifecycle

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"waldo/internal/id"
)

// marks is where the workspaces are noted that no sandbox names, not yet or no longer.
const marks = "workspaces"

// mark notes workspaces for as long as this process works on them. Those that no sandbox names when it
// was ended meanwhile are deleted by the next Sweep. The note is taken back by calling what it returns.
func (m *Manager) mark(workspaces ...string) (done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			_ = errors.Join(os.Remove(m.store.Path("run", marks, filepath.Base(f.Name()[:len(f.Name())-len(".new")]))), f.Close())
		}
	}
	for _, w := range workspaces {
		f, err := m.announce(marks, w)
		if err != nil {
			done()
			return nil, err
		}
		files = append(files, f)
	}
	return done, nil
}

// sweepMarks deletes the workspaces that a process had noted which is no more, but for those that
// became a sandbox's.
func (m *Manager) sweepMarks(ctx context.Context) error {
	notes, err := filepath.Glob(m.store.Path("run", marks, "w_*"))
	for _, n := range notes {
		err = errors.Join(err, m.sweepMark(ctx, n))
	}
	return err
}

func (m *Manager) sweepMark(ctx context.Context, note string) error {
	w := filepath.Base(note)
	f, err := os.OpenFile(note, os.O_RDWR, 0)
	if err != nil || !id.Is(id.Workspace, w) {
		return nil // taken back meanwhile, or about to be made
	}
	defer f.Close()
	if ok, err := lock(f); err != nil || !ok {
		return err
	}
	named, err := m.Workspaces(ctx) // asked once nobody works on it: what became a sandbox's is in it
	if err != nil {
		return err
	}
	if !named[w] {
		err = os.RemoveAll(m.store.Path("workspaces", w))
	}
	return errors.Join(err, os.Remove(note))
}
