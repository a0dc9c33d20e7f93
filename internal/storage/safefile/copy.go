package safefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// maxDepth is how deep below a name CopyTree follows folders: each holds a descriptor.
const maxDepth = 200

// CopyTree copies a file, link or folder below a root to the same path below a folder, for its owner alone. It copies
// no file in part. Left out and named is what is no file, link or folder, cannot be read, lies too deep, or is more than
// the given bytes together with those before it.
func CopyTree(root *os.Root, name, to string, most int64) (left []string, err error) {
	c := copier{room: most}
	to = filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return nil, err
	}
	err = c.copy(root, name, name, to, 0)
	return c.left, err
}

type copier struct {
	room int64
	left []string
}

// copy copies the name base of a folder, which is at a path, to a place. Its error is one of that place.
func (c *copier) copy(here *os.Root, base, at, to string, depth int) error {
	info, err := here.Lstat(base)
	switch {
	case err != nil || depth > maxDepth:
	case info.IsDir():
		below, err := here.OpenRoot(base)
		if err != nil {
			break
		}
		defer below.Close()
		return c.folder(below, at, to, depth)
	case info.Mode().Type() == fs.ModeSymlink:
		link, err := here.Readlink(base)
		if err != nil {
			break
		}
		return os.Symlink(link, to)
	case info.Mode().IsRegular() && info.Size() <= c.room:
		in, err := OpenIn(here, base)
		if err != nil {
			break
		}
		defer in.Close()
		return c.file(in, info.Size(), at, to)
	}
	c.left = append(c.left, at)
	return nil
}

func (c *copier) folder(below *os.Root, at, to string, depth int) error {
	if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := below.Open(".")
	if err != nil {
		c.left = append(c.left, at)
		return nil
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		c.left = append(c.left, at)
	}
	for _, n := range names {
		if err := c.copy(below, n, path.Join(at, n), filepath.Join(to, n), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// file copies a file of a size. One that another process makes longer or shorter meanwhile is left out.
func (c *copier) file(in io.Reader, size int64, at, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	from := &readErrors{in: in}
	n, err := io.Copy(out, io.LimitReader(from, size+1))
	if from.err == nil && err == nil && n == size {
		c.room -= n
		return out.Close()
	}
	c.left = append(c.left, at)
	if from.err != nil {
		err = nil // it is of the file that is read
	}
	return errors.Join(err, out.Close(), os.Remove(to))
}

// readErrors keeps the error of a reader apart from that of the writer.
type readErrors struct {
	in  io.Reader
	err error
}

func (r *readErrors) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
