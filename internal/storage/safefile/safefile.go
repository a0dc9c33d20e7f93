// Package safefile opens, locks and replaces files that several processes of waldo share.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MaxRead is the most that Read reads, in bytes: no file of a state directory that is read whole is larger.
const MaxRead = 64 << 20

// ErrIrregular: it is a link, a pipe, a folder or a device.
var ErrIrregular = errors.New("is not a regular file")

// Open opens a regular file. It does not follow a link, and does not wait for a pipe. Flags are those of os.OpenFile.
func Open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|NoFollow|noWait, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", path, ErrIrregular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// OpenIn opens a regular file of a folder for reading, as Open does.
func OpenIn(here *os.Root, name string) (*os.File, error) {
	was, err := here.Lstat(name)
	if err == nil && !was.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", name, ErrIrregular)
	}
	if err != nil {
		return nil, err
	}
	f, err := here.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	if is, err := f.Stat(); err != nil || !os.SameFile(was, is) {
		return nil, errors.Join(ErrChanged, err, f.Close())
	}
	return f, nil
}

// ReadIn reads a regular file of a folder, of at most so many bytes.
func ReadIn(here *os.Root, name string, most int64) ([]byte, error) {
	f, err := OpenIn(here, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, err
}

// OpenFolder opens what should be a folder, to list it, and waits for no pipe.
func OpenFolder(here *os.Root, name string) (*os.File, error) {
	return here.OpenFile(name, os.O_RDONLY|noWait, 0)
}

// Read reads a regular file of at most MaxRead bytes.
func Read(path string) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxRead+1))
	if len(b) > MaxRead {
		err = fmt.Errorf("%s has more than %d bytes", path, MaxRead)
	}
	return b, errors.Join(err, f.Close())
}

// Replace writes a file whole or not at all, in place of one that is there. After a crash it has the old content or the
// new. The umask does not change mode.
func Replace(path string, b []byte, mode fs.FileMode) error { return put(path, b, mode, os.Rename) }

// Create does the same for a file that is not there yet. One that is there is left alone, and is fs.ErrExist.
func Create(path string, b []byte, mode fs.FileMode) error { return put(path, b, mode, os.Link) }

func put(path string, b []byte, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}
