package changes

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"waldo/internal/storage/safefile"
)

// The bounds of what is looked at and copied of one folder.
const (
	maxEntries = 500_000
	maxCopied  = 256 << 10 // bytes of one file
	maxCopies  = 64 << 20  // bytes of all
)

// tree is the names of a folder with their stamps. Names below node_modules and the objects of a repository are left out.
type tree struct {
	entries map[string]stamp
	closed  map[string]bool // folders whose names cannot be read
	partial bool
}

// skipped reports a folder whose names are not looked at.
func skipped(at string) bool {
	name := path.Base(at)
	return name == "node_modules" || name == "objects" && path.Base(path.Dir(at)) == ".git"
}

func look(root *os.Root) *tree {
	t := &tree{entries: map[string]stamp{}, closed: map[string]bool{}}
	t.add(root, "")
	return t
}

// add looks at the names of one folder below the root, and at those below them. What is gone meanwhile is left out.
func (t *tree) add(dir *os.Root, rel string) {
	f, err := dir.Open(".")
	if err != nil {
		t.closed[rel] = true
		return
	}
	all, _ := f.Readdir(-1) // asks for each name below the open folder, without the whole path
	f.Close()
	for _, info := range all {
		if len(t.entries) == maxEntries {
			t.partial = true
			return
		}
		at := rel + info.Name()
		t.entries[at] = stampOf(info)
		if !info.IsDir() || skipped(at) {
			continue
		}
		if below, err := dir.OpenRoot(info.Name()); err == nil {
			t.add(below, at+"/")
			below.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.closed[at+"/"] = true
		}
	}
}

// archive holds copies of the files of a folder as they were before a run, in one file.
type archive struct {
	file  *os.File
	where map[string][2]int64 // offset and length
	links map[string]string
}

// pack copies the small files of a folder.
func pack(folder *os.Root, t *tree, to string) (*archive, error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	a := &archive{file: f, where: map[string][2]int64{}, links: map[string]string{}}
	w := bufio.NewWriterSize(f, 1<<20)
	var size int64
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		st := t.entries[name]
		switch {
		case st.Mode.Type() == fs.ModeSymlink:
			if to, err := folder.Readlink(name); err == nil {
				a.links[name] = to
			}
		case st.Mode.IsRegular() && st.Size <= maxCopied && size+st.Size <= maxCopies:
			in, err := safefile.OpenIn(folder, name)
			if err != nil {
				continue // it has no copy, so it is not taken back
			}
			n, err := io.Copy(w, io.LimitReader(in, maxCopied))
			in.Close()
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			a.where[name] = [2]int64{size, n}
			size += n
		}
	}
	return a, w.Flush()
}

// unpack writes the copy of a file to before/N.
func (a *archive) unpack(name, to string) bool {
	dst := filepath.Join(to, name)
	if os.MkdirAll(filepath.Dir(dst), 0o700) != nil {
		return false
	}
	if link, ok := a.links[name]; ok {
		return os.Symlink(link, dst) == nil
	}
	where, ok := a.where[name]
	if !ok {
		return false
	}
	b := make([]byte, where[1])
	if _, err := a.file.ReadAt(b, where[0]); err != nil {
		return false
	}
	return os.WriteFile(dst, b, 0o600) == nil
}

// endKept compares a folder with what it was, and keeps copies of what was overwritten or removed.
func (l *ledger) endKept(n int, f *Folder) (err error) {
	before, copies := l.before[n], l.copies[n]
	now := look(l.roots[n])
	f.Partial = before.partial || now.partial
	for at := range now.closed { // the run has closed it
		f.Partial = f.Partial || !before.closed[at]
	}
	gone := map[[2]uint64]string{} // of removed files, by device and inode
	for name, st := range before.entries {
		if _, ok := now.entries[name]; !ok && st.Mode.IsRegular() {
			gone[st.file()] = name
		}
	}
	for name, st := range now.entries {
		was, ok := before.entries[name]
		e := &Entry{Path: name, Op: Modified, Mode: st.Mode, Was: was.Mode, State: made, After: &st}
		switch from, moved := gone[st.file()]; {
		case ok && (st.Mode.IsDir() && st.Mode == was.Mode || st == was):
			continue
		case !ok && moved && st.Mode.IsRegular() && st.Size == before.entries[from].Size &&
			st.Modified == before.entries[from].Modified: // another file can have got its inode
			e.Op, e.From, e.Was = Renamed, from, before.entries[from].Mode
			delete(gone, st.file())
			delete(before.entries, from)
		case !ok:
			e.Op, e.Was = Added, 0
		}
		f.Entries = append(f.Entries, e)
	}
	for name, st := range before.entries {
		if _, ok := now.entries[name]; !ok {
			f.Entries = append(f.Entries, &Entry{Path: name, Op: Removed, Mode: st.Mode, State: made})
		}
	}
	order(f.Entries)
	if copies != nil {
		for _, e := range f.Entries {
			old := e.Path
			if e.Op == Renamed {
				old = e.From
			}
			if e.Op != Added && !e.Mode.IsDir() {
				e.Before = copies.unpack(old, l.store.at(l.record.ID, beforeDir(n)))
			}
		}
		err = errors.Join(copies.file.Close(), os.Remove(copies.file.Name()))
	}
	mark(f.Entries, l.rules[n], nil)
	return err
}
