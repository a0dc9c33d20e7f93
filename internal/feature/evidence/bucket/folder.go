package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/storage/safefile"
)

// Folder is a bucket in a folder, as of a mounted disk. The folder must exist: one that is not mounted is an error.
type Folder string

func (f Folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// there returns an error unless the folder exists.
func (f Folder) there() error {
	info, err := os.Stat(string(f))
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", string(f))
	}
	return err
}

// Put writes a file and waits for the disk.
func (f Folder) Put(_ context.Context, name string, b []byte) error {
	if err := f.there(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o700); err != nil {
		return err
	}
	err := safefile.Create(f.path(name), b, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	return err
}

// Get reads a file.
func (f Folder) Get(_ context.Context, name string) ([]byte, error) {
	if err := f.there(); err != nil {
		return nil, unlessMissing(err)
	}
	file, err := safefile.Open(f.path(name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return whole(file)
}

// unlessMissing keeps a folder that is missing apart from an object that is.
func unlessMissing(err error) error { return errors.New(err.Error()) }

// whole reads an object of at most MaxObject bytes.
func whole(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxObject+1))
	if err == nil && len(b) > MaxObject {
		err = fmt.Errorf("the object has more than %d bytes", MaxObject)
	}
	return b, err
}

// List walks the folder.
func (f Folder) List(ctx context.Context, prefix, after string) (names []string, err error) {
	if err := f.there(); err != nil {
		return nil, unlessMissing(err)
	}
	err = filepath.WalkDir(string(f), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		name, err := filepath.Rel(string(f), path)
		if name = filepath.ToSlash(name); err == nil && strings.HasPrefix(name, prefix) && name > after &&
			!strings.HasPrefix(d.Name(), ".") { // a file that is being written
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}
