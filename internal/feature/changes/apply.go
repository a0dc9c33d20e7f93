package changes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/executor/protect"
	"waldo/internal/model/contract"
	"waldo/internal/storage/safefile"
)

// Conflict is a change that cannot be taken, or taken back.
type Conflict struct{ Path, Why string }

func (c Conflict) Error() string { return c.Path + ": " + c.Why }

// The reasons of conflicts.
const (
	whyOutside   = "it changed outside since the run began"
	whyThere     = "it exists outside by now"
	whyGone      = "it is gone outside"
	whyProtected = "its name is protected, so it is taken by its own path alone"
	whyGit       = "a folder above it is a repository by now, so it is taken by its own path alone"
	whyKind      = "it was a file and is a folder, or the other way round: that is not taken back"
	whyTouched   = "it changed since"
	whyNoCopy    = "there is no copy of what it was: it was over 256 KiB, or --changes keep was not given"
)

// chosen reports whether paths name an entry, and whether one is exactly it or, for a protected one, a folder that is
// protected itself. No paths choose all.
func chosen(f *Folder, e *Entry, paths []string) (yes, exactly bool) {
	full := filepath.Join(f.Source, e.Path)
	for _, p := range paths {
		if p == full || p == e.Path {
			return true, true
		}
		if strings.HasPrefix(full, strings.TrimSuffix(p, "/")+"/") || strings.HasPrefix(e.Path, strings.TrimSuffix(p, "/")+"/") {
			yes = true
		}
	}
	return yes || len(paths) == 0, false
}

// Apply takes the changes that wait, all or those below the paths: either all of them or, with an error, none.
// Protected names are taken only if a path is exactly theirs; they are returned otherwise. New folders are taken with
// what is in them.
func (s *Store) Apply(r *Record, paths []string) (taken int, left []Conflict, err error) {
	var all []*step
	var conflicts []error
	for n, f := range r.Folders {
		root, err := safefile.Exact(f.Source)
		if err != nil {
			return 0, nil, err
		}
		defer root.Close()
		up, err := os.OpenRoot(s.upper(r.ID, n))
		if err != nil {
			return 0, nil, err
		}
		defer up.Close()
		_, repositories, err := protect.Rules{}.At(f.Source).Marks(up, root)
		if err != nil {
			return 0, nil, err
		}
		pick := func(e *Entry) (yes bool, why string) {
			yes, exactly := chosen(f, e, paths)
			full := filepath.Join(f.Source, e.Path)
			switch yes = yes && e.State == waiting; {
			case !yes || exactly:
			case e.Protected != "":
				why = whyProtected
			case slices.ContainsFunc(repositories, func(r string) bool {
				repository := filepath.Join(f.Source, r)
				return full != repository && contract.Within(full, repository) && !slices.Contains(f.Repositories, safefile.Text(r))
			}):
				why = whyGit
			}
			return yes, why
		}
		above := map[string]bool{} // the new folders that a change needs are taken with it
		for _, e := range f.Entries {
			if yes, why := pick(e); yes && why == "" && e.Op != Removed {
				for at := path.Dir(e.Path); at != "."; at = path.Dir(at) {
					above[at] = true
				}
			}
		}
		replaced := map[string]bool{}
		for _, e := range f.Entries {
			full := filepath.Join(f.Source, e.Path)
			yes, why := pick(e)
			if above[e.Path] && e.State == waiting && e.Op == Added && e.Mode.IsDir() {
				if _, err := lstat(root, e.Path); err == nil && !yes {
					continue // somebody else made it
				}
				yes, why = true, ""
			}
			if why != "" {
				left = append(left, Conflict{full, why})
			}
			if !yes || why != "" {
				continue
			}
			if why := conflict(root, r, e, replaced[e.Path]); why != "" {
				conflicts = append(conflicts, Conflict{full, why})
			}
			replaced[e.Path] = e.Op == Removed
			all = append(all, &step{root: root, up: up, entry: e, before: s.at(r.ID, beforeDir(n))})
		}
	}
	if len(conflicts) > 0 {
		return 0, left, errors.Join(conflicts...)
	}
	if err := run(all); err != nil {
		return 0, left, err
	}
	for _, t := range all {
		t.entry.State = made
		if info, err := lstat(t.root, t.entry.Path); err == nil {
			st := stampOf(info)
			t.entry.After = &st
		}
	}
	return len(all), left, s.save(r)
}

// errLink is returned for a path through a link: what it leads to has another name, which nobody was asked about.
var errLink = errors.New("a folder above it is a link or a file by now")

// in calls do with the folder of a name and its last part. No part of the way may be a link, also at this moment.
// What is missing of it is made with mode, unless that is 0.
func in(root *os.Root, name string, mode fs.FileMode, do func(dir *os.Root, base string) error) error {
	dir, err := root.OpenRoot(".")
	if err != nil {
		return err
	}
	defer func() { dir.Close() }()
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		if part == "." {
			continue
		}
		below, err := safefile.Step(dir, part)
		if errors.Is(err, fs.ErrNotExist) && mode != 0 {
			if err = dir.Mkdir(part, mode); err == nil {
				below, err = safefile.Step(dir, part)
			}
		}
		if errors.Is(err, safefile.ErrChanged) || errors.Is(err, safefile.ErrNoFolder) {
			return errLink
		}
		if err != nil {
			return err
		}
		dir.Close()
		dir = below
	}
	return do(dir, path.Base(name))
}

// lstat is Lstat of a name that no link leads to.
func lstat(root *os.Root, name string) (info fs.FileInfo, err error) {
	err = in(root, name, 0, func(dir *os.Root, base string) error {
		info, err = dir.Lstat(base)
		return err
	})
	return info, err
}

func remove(root *os.Root, name string) error {
	return in(root, name, 0, func(dir *os.Root, base string) error { return dir.Remove(base) })
}

// chmod changes the mode of a folder.
func chmod(root *os.Root, name string, mode fs.FileMode) error {
	return in(root, name+"/.", 0, func(dir *os.Root, _ string) error { return dir.Chmod(".", mode.Perm()) })
}

func mkdirAll(root *os.Root, name string, mode fs.FileMode) error {
	return in(root, name+"/.", mode, func(*os.Root, string) error { return nil })
}

// conflict returns why a change cannot be made; "": it can. replaced: another change of the same record removes the
// name.
func conflict(root *os.Root, r *Record, e *Entry, replaced bool) string {
	info, err := lstat(root, e.Path)
	there := err == nil
	switch {
	case replaced:
		return ""
	case errors.Is(err, errLink):
		return errLink.Error()
	case e.Op == Added && e.Copied:
		return whyGone
	case e.Op == Added && there:
		return whyThere
	case e.Op == Added:
		return ""
	case !there:
		return whyGone
	case !info.IsDir() && stampOf(info).Changed >= r.Begun.UnixNano():
		return whyOutside
	}
	return ""
}

// step is one change under way.
type step struct {
	root, up *os.Root
	entry    *Entry
	before   string // for a copy of what was there
	aside    string // the new file, beside its place
	old      string // another name of what was there, until all is made; empty: it has none
	undo     func() error
	reopen   func() error // gives a folder the mode back that it had under way
}

// run makes all steps, or none: new files are complete beside their places before the first is renamed into its own,
// and an error takes back what was made.
func run(all []*step) (err error) {
	defer func() {
		for _, t := range all {
			if err != nil && t.reopen != nil {
				err = errors.Join(err, t.reopen())
			}
		}
		for _, t := range slices.Backward(all) {
			if t.aside != "" {
				_ = remove(t.root, t.aside) // gone if it was renamed
			}
			if err != nil && t.undo != nil {
				err = errors.Join(err, t.undo())
			}
			if t.old != "" {
				_ = remove(t.root, t.old) // gone if it was taken back
			}
		}
	}()
	for _, prepare := range []func(*step) error{(*step).keep, (*step).folder, (*step).write} {
		for _, t := range all {
			if err := prepare(t); err != nil {
				return fmt.Errorf("%s: %w", t.entry.Path, err)
			}
		}
	}
	for _, t := range all {
		if err := t.place(); err != nil {
			return fmt.Errorf("%s: %w", t.entry.Path, err)
		}
	}
	for _, t := range slices.Backward(all) { // modes of folders, the deepest first: all is in its place
		if err := t.mode(); err != nil {
			return fmt.Errorf("%s: %w", t.entry.Path, err)
		}
	}
	return nil
}

// keep copies what will be overwritten or removed, whole: a change is taken back from it. Of what it cannot read, nothing
// is overwritten.
func (t *step) keep() error {
	e := t.entry
	if e.Op == Added || e.Mode.IsDir() && e.Was.IsDir() || e.Op == Removed && e.Mode.IsDir() {
		return nil
	}
	_ = os.RemoveAll(filepath.Join(t.before, e.Path))
	left, err := safefile.CopyTree(t.root, e.Path, t.before, math.MaxInt64)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s cannot be copied first, so it is not overwritten", e.Path)
	}
	if err != nil {
		return err
	}
	e.Before = true
	return nil
}

// folder makes a new folder, so that files can be written in it.
func (t *step) folder() error {
	e := t.entry
	if !e.Mode.IsDir() || e.Op != Added {
		return nil
	}
	info, err := t.up.Lstat(e.Path)
	if err != nil {
		return err
	}
	err = in(t.root, e.Path, 0, func(dir *os.Root, base string) error {
		if err := dir.Mkdir(base, e.Mode.Perm()|0o700); err != nil {
			return err
		}
		t.undo = func() error { return remove(t.root, e.Path) }
		return ownedAs(dir, base, info)
	})
	if errors.Is(err, fs.ErrExist) {
		return nil // another name is removed there first
	}
	return err
}

// write puts a new file or link beside its place.
func (t *step) write() error {
	e := t.entry
	if e.Op == Removed || e.Mode.IsDir() {
		return nil
	}
	info, err := t.up.Lstat(e.Path)
	if err != nil {
		return err
	}
	t.aside = path.Join(path.Dir(e.Path), ".waldo-"+rand.Text())
	return in(t.root, t.aside, 0o755, func(dir *os.Root, base string) error {
		return put(t.up, e.Path, e.Mode, dir, base, info)
	})
}

// put makes a new file or link with what another one holds.
func put(from *os.Root, old string, mode fs.FileMode, dir *os.Root, base string, owner fs.FileInfo) error {
	if mode.Type() == fs.ModeSymlink {
		to, err := from.Readlink(old)
		if err == nil {
			err = dir.Symlink(to, base)
		}
		if err != nil {
			return err
		}
		return ownedAs(dir, base, owner)
	}
	in, err := safefile.OpenIn(from, old)
	if err != nil {
		return err
	}
	defer in.Close()
	if err = create(dir, base, in, mode.Perm()); err == nil {
		err = ownedAs(dir, base, owner)
	}
	return err
}

// create writes a new file.
func create(root *os.Root, name string, in io.Reader, mode fs.FileMode) error {
	out, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// place makes the change itself.
func (t *step) place() error {
	e := t.entry
	switch {
	case e.Op == Removed && e.Mode.IsDir():
		err := remove(t.root, e.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // files of others are in it
		}
		t.undo = func() error { return mkdirAll(t.root, e.Path, e.Mode.Perm()) }
	case e.Op == Removed:
		t.link()
		if err := remove(t.root, e.Path); err != nil {
			return err
		}
		t.undo = func() error { return t.back(e.Mode) }
	case e.Mode.IsDir() && e.Op == Modified:
	case e.Mode.IsDir():
		if _, err := lstat(t.root, e.Path); err != nil {
			return t.folder()
		}
	default:
		t.link()
		err := in(t.root, e.Path, 0, func(dir *os.Root, base string) error { return dir.Rename(path.Base(t.aside), base) })
		if err != nil {
			return err
		}
		t.undo = func() error {
			if e.Op == Added {
				return remove(t.root, e.Path)
			}
			return t.back(e.Was)
		}
	}
	return nil
}

// link gives what is there another name, so that it comes back as it was if a later change fails.
func (t *step) link() {
	e := t.entry
	if e.Op == Added || e.Was.IsDir() {
		return
	}
	old := path.Join(path.Dir(e.Path), ".waldo-"+rand.Text())
	err := in(t.root, old, 0, func(dir *os.Root, base string) error { return dir.Link(path.Base(e.Path), base) })
	if err == nil { // else a copy comes back
		t.old = old
	}
}

// back puts back what was there.
func (t *step) back(mode fs.FileMode) error {
	e := t.entry
	if t.old == "" {
		return restore(t.root, e, e.Path, mode, t.before)
	}
	return in(t.root, e.Path, 0, func(dir *os.Root, base string) error { return dir.Rename(path.Base(t.old), base) })
}

// mode gives a folder its mode.
func (t *step) mode() error {
	e := t.entry
	if !e.Mode.IsDir() || e.Op == Removed {
		return nil
	}
	was := e.Was
	if e.Op == Added {
		was = e.Mode | 0o700
	}
	if err := chmod(t.root, e.Path, e.Mode); err != nil {
		return err
	}
	t.reopen = func() error { return chmod(t.root, e.Path, was) }
	return nil
}

// restore puts the copy of a file back, at a name.
func restore(root *os.Root, e *Entry, name string, mode fs.FileMode, before string) error {
	old := e.Path
	if e.Op == Renamed {
		old = e.From
	}
	from, err := os.OpenRoot(before)
	if err != nil {
		return err
	}
	defer from.Close()
	return in(root, name, 0o755, func(dir *os.Root, base string) error {
		owner, err := root.Stat(".")
		if err != nil {
			return err
		}
		aside := ".waldo-" + rand.Text()
		if err = put(from, old, mode, dir, aside, owner); err == nil {
			err = dir.Rename(aside, base)
		}
		if err != nil {
			_ = dir.Remove(aside) // gone if it was not made
		}
		return err
	})
}

// Drop forgets the changes that wait, all or those below the paths.
func (s *Store) Drop(r *Record, paths []string) (n int, err error) {
	left := false
	for _, f := range r.Folders {
		for _, e := range f.Entries {
			if yes, _ := chosen(f, e, paths); yes && e.State == waiting {
				e.State = dropped
				n++
			}
			left = left || e.State == waiting
		}
	}
	if !left {
		for i := range r.Folders {
			err = errors.Join(err, os.RemoveAll(s.at(r.ID, asideDir(i))))
		}
	}
	return n, errors.Join(err, s.save(r))
}
