package changes

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"waldo/internal/storage/safefile"
)

// Undo takes back the changes that were made, all or those below the paths. It leaves files that something else has
// changed since, and those without a copy, and returns them.
func (s *Store) Undo(r *Record, paths []string) (n int, left []Conflict, err error) {
	for i, f := range r.Folders {
		root, err := safefile.Exact(f.Source)
		if err != nil {
			return n, left, err
		}
		defer root.Close()
		shut, err := unlock(root, f.Entries)
		if err != nil {
			return n, left, err
		}
		for _, e := range slices.Backward(f.Entries) { // what was made last comes first
			if yes, _ := chosen(f, e, paths); !yes || e.State != made {
				continue
			}
			why, err := takeBack(root, e, s.at(r.ID, beforeDir(i)))
			if err != nil {
				why = err.Error()
			}
			if why != "" {
				left = append(left, Conflict{filepath.Join(f.Source, e.Path), why})
				continue
			}
			e.State = undone
			n++
		}
		shut()
	}
	return n, left, s.save(r)
}

// unlock lets names be made and removed in the folders of a record that are closed for it. shut gives those that were
// not taken back the mode that they had.
func unlock(root *os.Root, entries []*Entry) (shut func(), err error) {
	modes := map[*Entry]fs.FileMode{}
	for _, e := range entries { // a folder comes before what is in it
		info, err := lstat(root, e.Path)
		if err != nil || !info.IsDir() || !e.Mode.IsDir() || e.State != made || info.Mode()&0o700 == 0o700 {
			continue
		}
		if err := chmod(root, e.Path, info.Mode()|0o700); err != nil {
			return nil, err
		}
		modes[e] = info.Mode()
	}
	return func() {
		for _, e := range slices.Backward(entries) {
			if mode, opened := modes[e]; opened && e.State == made {
				_ = chmod(root, e.Path, mode) // it is open, and its owner sees that
			}
		}
	}, nil
}

// takeBack makes one name what it was. why is the reason against it.
func takeBack(root *os.Root, e *Entry, before string) (why string, err error) {
	info, missing := lstat(root, e.Path)
	switch {
	case errors.Is(missing, errLink):
		return errLink.Error(), nil
	case e.Op == Removed && missing == nil && e.Mode.IsDir() && info.IsDir():
		return "", nil
	case e.Op == Removed && missing == nil:
		return whyThere, nil
	case e.Op == Removed && e.Mode.IsDir():
		return "", mkdirAll(root, e.Path, e.Mode.Perm())
	case e.Op == Removed && !e.Before:
		return whyNoCopy, nil
	case e.Op == Removed:
		return "", restore(root, e, e.Path, e.Mode, before)
	case missing != nil:
		return whyGone, nil
	case e.Mode.IsDir() && e.Op == Added:
		if err := remove(root, e.Path); err != nil {
			return "it holds other files", nil
		}
		return "", nil
	case e.Mode.IsDir() != e.Was.IsDir():
		return whyKind, nil
	case e.Mode.IsDir():
		return "", chmod(root, e.Path, e.Was)
	case e.After == nil || stampOf(info) != *e.After:
		return whyTouched, nil
	case e.Op == Added:
		return "", remove(root, e.Path)
	case !e.Before:
		return whyNoCopy, nil
	case e.Op == Renamed:
		if _, err := lstat(root, e.From); !errors.Is(err, fs.ErrNotExist) {
			return path.Base(e.From) + " exists by now", nil
		}
		if err := restore(root, e, e.From, e.Was, before); err != nil {
			return "", err
		}
		return "", remove(root, e.Path)
	}
	return "", restore(root, e, e.Path, e.Was, before)
}
