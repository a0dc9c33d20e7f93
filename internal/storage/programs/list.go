package programs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/id"
)

// Listed is a suspended program without its image and its start.
type Listed struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"` // of its file
	Taken bool   `json:"taken"` // it goes on now, or its waldo was killed while it did
	Program
}

// Waits names the questions that it waits for.
func (l Listed) Waits() string {
	if l.Taken {
		return "nothing: it went on"
	}
	return strings.Join(l.Approvals, ", ")
}

// List returns the programs, the oldest first. It leaves out files that do not open.
func (s Store) List() ([]Listed, error) {
	all, bad := s.listRows()
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	all, err = append([]Listed{}, all...), errors.Join(err, bad)
	for _, e := range entries {
		name, went := strings.CutSuffix(e.Name(), taken)
		info, gone := e.Info()
		if !id.Is(id.Program, name) || gone != nil {
			continue
		}
		p, bad := s.openFile(e.Name(), name)
		if bad != nil {
			continue
		}
		p.Image, p.Start = nil, nil
		all = append(all, Listed{ID: name, Bytes: info.Size(), Taken: went, Program: p})
	}
	slices.SortFunc(all, func(a, b Listed) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return all, err
}

// Remove removes the programs that match, and returns how many. One that goes on runs on.
func (s Store) Remove(match func(Program) bool) (n int, err error) {
	n, bad := s.removeRows(match)
	all, err := s.List()
	err = errors.Join(err, bad)
	for _, p := range all {
		if !match(p.Program) {
			continue
		}
		one := os.Remove(filepath.Join(s.Dir, p.ID))
		if p.Taken {
			one = os.Remove(filepath.Join(s.Dir, p.ID+taken))
		}
		if one == nil {
			n++
		} else if !errors.Is(one, fs.ErrNotExist) {
			err = errors.Join(err, one)
		}
	}
	return n, err
}
