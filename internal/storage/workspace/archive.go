package workspace

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// ErrTooMuch: an archive or file exceeds its bounds.
var ErrTooMuch = errors.New("too much")

// ErrArchive: the input is not an archive, or it is empty.
var ErrArchive = errors.New("not an archive with something in it")

// Bounds limit the files of a folder as the memory file system of a sandbox counts them. A file counts in whole
// pages, and each folder as one entry, also a folder that is part of a path. Zero bounds allow nothing.
type Bounds struct {
	Bytes   int64           // of all files together
	Entries int             // files and folders together
	folders map[string]bool // that have been counted
}

// Room returns what of its bounds a folder has left.
func (w *Workspace) Room(f Folder, b Bounds) (Bounds, error) {
	r, err := w.folder(f)
	if err != nil {
		return Bounds{}, err
	}
	b.folders = map[string]bool{}
	err = fs.WalkDir(r.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.Entries--
		if b.folders[name] = d.IsDir(); !d.Type().IsRegular() {
			return nil
		}
		st, err := d.Info()
		if err == nil {
			b.Bytes -= pages(st.Size())
		}
		return err
	})
	return b, err
}

// pages returns the size of a file of n bytes in a sandbox.
func pages(n int64) int64 { return (n + 4095) &^ 4095 }

// Take counts a file of n bytes, and the folders that are made for it.
func (b *Bounds) Take(name string, n int64) error {
	b.Entries--
	b.within(path.Dir(name))
	b.Bytes -= pages(n)
	switch {
	case b.Entries < 0:
		return fmt.Errorf("%q: the disk limit allows no more files and folders: %w", name, ErrTooMuch)
	case b.Bytes < 0:
		return fmt.Errorf("%q: the disk limit does not allow %d more bytes: %w", name, n, ErrTooMuch)
	}
	return nil
}

// within counts a folder and those that it stands in, once.
func (b *Bounds) within(folder string) {
	if b.folders == nil {
		b.folders = map[string]bool{}
	}
	for ; folder != "." && !b.folders[folder]; folder = path.Dir(folder) {
		b.folders[folder] = true
		b.Entries--
	}
}

// Unpacked says what came out of an archive.
type Unpacked struct {
	Files   []string // as they are named below the folder
	Skipped []string // entries that are neither file nor folder, as "name: link"
}

// ExtractTar unpacks a tar stream into dest below a folder. It refuses archives with absolute or climbing names, and
// empty ones. It skips links and devices and lists them. It drops owners, set-id bits and extended attributes. Beyond
// the bounds it returns ErrTooMuch. Files that were unpacked before an error stay.
func (w *Workspace) ExtractTar(f Folder, dest string, from io.Reader, b Bounds) (Unpacked, error) {
	u, err := w.unpacker(f, dest, b)
	if err != nil {
		return Unpacked{}, err
	}
	r := tar.NewReader(from)
	for found := false; ; found = true {
		h, err := r.Next()
		if err == io.EOF && found {
			return u.done, nil
		}
		if err != nil {
			return u.done, fmt.Errorf("%w: tar: %w", ErrArchive, err)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			err = u.count()
		case tar.TypeReg:
			err = u.file(h.Name, r)
		case tar.TypeDir:
			err = u.folder(h.Name)
		default:
			err = u.skip(h.Name, "not a file or folder")
		}
		if err != nil {
			return u.done, err
		}
	}
}

// unpacker lets entries out of an archive, one by one, until the bounds are reached.
type unpacker struct {
	into Folder
	root *os.Root
	dest string
	left Bounds
	done Unpacked
}

func (w *Workspace) unpacker(f Folder, dest string, b Bounds) (*unpacker, error) {
	r, err := w.folder(f)
	if err != nil {
		return nil, err
	}
	if dest != "" {
		if dest, err = Clean(dest); err != nil {
			return nil, err
		}
	}
	return &unpacker{root: r, into: f, dest: dest, left: b}, nil
}

func (u *unpacker) count() error {
	if u.left.Entries--; u.left.Entries < 0 {
		return fmt.Errorf("the archive has too many entries: %w", ErrTooMuch)
	}
	return nil
}

// name places the name of an entry below dest.
func (u *unpacker) name(entry string) (string, error) {
	clean, err := Clean(strings.TrimPrefix(entry, "./"))
	if err != nil {
		return "", fmt.Errorf("archive entry %q: %w", entry, err)
	}
	clean = path.Join(u.dest, clean)
	return clean, apart(u.into, clean)
}

func (u *unpacker) file(entry string, from io.Reader) error {
	name, err := u.name(entry)
	if err != nil {
		return err
	}
	if err := u.left.Take(name, 0); err != nil {
		return err
	}
	n, err := put(u.root, name, from, u.left.Bytes)
	if err != nil {
		return err
	}
	u.left.Bytes -= pages(n)
	u.done.Files = append(u.done.Files, name)
	return nil
}

func (u *unpacker) folder(entry string) error {
	if err := u.count(); err != nil {
		return err
	}
	if strings.Trim(entry, "./") == "" && !strings.Contains(entry, "..") && !strings.HasPrefix(entry, "/") {
		return nil // the folder itself
	}
	name, err := u.name(entry)
	if err != nil {
		return err
	}
	if !u.left.folders[name] {
		u.left.Entries++ // it was counted as an entry
	}
	if u.left.within(name); u.left.Entries < 0 {
		return fmt.Errorf("%q: the disk limit allows no more files and folders: %w", name, ErrTooMuch)
	}
	return u.root.MkdirAll(name, 0o700)
}

func (u *unpacker) skip(entry, why string) error {
	if err := u.count(); err != nil {
		return err
	}
	u.done.Skipped = append(u.done.Skipped, fmt.Sprintf("%q: %s", entry, why))
	return nil
}
