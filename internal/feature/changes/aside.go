package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"waldo/internal/storage/safefile"
)

// upper is the folder of the writes that went aside.
func (s *Store) upper(call string, n int) string { return s.at(call, asideDir(n), "upper") }

// endAside finds what an overlay's upper folder changes in the folder below.
func (l *ledger) endAside(n int, f *Folder) error {
	up, err := os.OpenRoot(l.store.upper(l.record.ID, n))
	if err != nil {
		return err
	}
	defer up.Close()
	d := &differ{up: up, low: l.roots[n], folder: f}
	if err := d.compare("."); err != nil {
		return err
	}
	order(f.Entries)
	marks, repositories, err := l.rules[n].Marks(up, l.roots[n])
	mark(f.Entries, l.rules[n], marks)
	for _, r := range repositories {
		f.Repositories = append(f.Repositories, safefile.Text(r))
	}
	return err
}

// differ compares an upper folder with the folder below.
type differ struct {
	up, low *os.Root
	folder  *Folder
}

func (d *differ) add(e *Entry) {
	if len(d.folder.Entries) == maxEntries {
		d.folder.Partial = true
		return
	}
	e.State = waiting
	d.folder.Entries = append(d.folder.Entries, e)
}

func (d *differ) compare(dir string) error {
	f, err := safefile.OpenFolder(d.up, dir)
	if err != nil {
		return err
	}
	all, err := f.ReadDir(-1)
	opaque := isOpaque(f)
	f.Close()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, e := range all {
		seen[e.Name()] = true
		if err := d.entry(path.Join(dir, e.Name()), opaque); err != nil {
			return err
		}
	}
	if !opaque {
		return nil
	}
	below, err := fs.ReadDir(d.low.FS(), dir)
	for _, e := range below {
		if !seen[e.Name()] {
			d.removed(path.Join(dir, e.Name()))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d *differ) entry(at string, opaque bool) error {
	info, err := d.up.Lstat(at)
	if err != nil {
		return err
	}
	old, missing := d.low.Lstat(at)
	there := missing == nil
	if isWhiteout(info) {
		if there {
			d.removed(at)
		}
		return nil
	}
	if !info.Mode().IsRegular() && !info.IsDir() && info.Mode().Type() != fs.ModeSymlink {
		return nil // a socket, pipe or device is never taken
	}
	e := &Entry{Path: at, Op: Added, Mode: info.Mode(), Copied: !opaque && !info.IsDir() && cameFromBelow(d.up, at)}
	if there && old.Mode().Type() == info.Mode().Type() {
		if info.IsDir() && old.Mode() == info.Mode() || !info.IsDir() && d.same(at, old, info) {
			e = nil
		} else {
			e.Op, e.Was = Modified, old.Mode()
		}
	} else if there {
		d.removed(at)
	}
	if e != nil {
		d.add(e)
	}
	if info.IsDir() {
		return d.compare(at)
	}
	return nil
}

// removed adds a name of the folder below, with all that is under it.
func (d *differ) removed(at string) {
	_ = fs.WalkDir(d.low.FS(), at, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			d.folder.Partial = true
			return nil
		}
		if info, err := e.Info(); err == nil {
			d.add(&Entry{Path: name, Op: Removed, Mode: info.Mode()})
		}
		return nil
	})
}

// same reports whether a file or link that went aside is as the one below.
func (d *differ) same(at string, old, now fs.FileInfo) bool {
	if old.Mode() != now.Mode() || old.Size() != now.Size() {
		return false
	}
	if now.Mode().Type() == fs.ModeSymlink {
		a, err1 := d.up.Readlink(at)
		b, err2 := d.low.Readlink(at)
		return err1 == nil && err2 == nil && a == b
	}
	a, err := safefile.OpenIn(d.up, at)
	if err != nil {
		return false
	}
	defer a.Close()
	b, err := safefile.OpenIn(d.low, at)
	if err != nil {
		return false
	}
	defer b.Close()
	return equal(a, b)
}

func equal(a, b io.Reader) bool {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err1 := io.ReadFull(a, x)
		m, err2 := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if err1 != nil || err2 != nil {
			return errors.Is(err1, io.EOF) == errors.Is(err2, io.EOF) && (err1 == nil) == (err2 == nil)
		}
	}
}

// The folders of a record, by the number of the mount.
func asideDir(n int) string  { return fmt.Sprint("aside", n) }
func beforeDir(n int) string { return fmt.Sprint("before", n) }
func heldDir(n int) string   { return fmt.Sprint("held", n) }
