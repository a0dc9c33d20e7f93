package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/storage/safefile"
)

// Folder is a bucket in a folder, as of a mounted disk. The folder must exist: one that is not mounted is an error. No
// link in it is followed.
type Folder string

// in opens the folder of a name.
func (f Folder) in(name string, create bool) (*os.Root, error) {
	here, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, unlessMissing(err)
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, path.Base(name)), "/") {
		if part == "" {
			continue
		}
		next, err := safefile.Step(here, part)
		if create && errors.Is(err, fs.ErrNotExist) {
			if err = here.Mkdir(part, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				next, err = safefile.Step(here, part)
			}
		}
		_ = here.Close()
		if err != nil {
			return nil, unreadable(fmt.Errorf("%s of %s in %s: %w", part, name, string(f), err))
		}
		here = next
	}
	return here, nil
}

// Put writes a file and waits for the disk.
func (f Folder) Put(_ context.Context, name string, b []byte) error {
	here, err := f.in(name, true)
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }()
	fresh := ".new-" + rand.Text()
	file, err := here.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = here.Remove(fresh) }()
	_, err = file.Write(b)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = here.Link(fresh, path.Base(name)); errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	return errors.Join(err, safefile.SyncDir(filepath.Join(string(f), filepath.FromSlash(path.Dir(name)))))
}

// Get reads a file.
func (f Folder) Get(ctx context.Context, name string, most int) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	here, err := f.in(name, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = here.Close() }()
	file, err := safefile.OpenIn(here, path.Base(name))
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = file.Close() }()
	return whole(file, most)
}

// unreadable marks the errors of one name.
func unreadable(err error) error {
	for _, of := range []error{safefile.ErrIrregular, safefile.ErrChanged, safefile.ErrNoFolder, fs.ErrPermission} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return err
}

// unlessMissing keeps a folder that is missing apart from an object that is.
func unlessMissing(err error) error { return errors.New(err.Error()) }

// List walks the folder. A folder below the first that may not be read is as an object of its name.
func (f Folder) List(ctx context.Context, prefix, after string) (names []string, err error) {
	here, err := f.in("", false)
	if err != nil {
		return nil, err
	}
	_ = here.Close()
	top, err := filepath.EvalSymlinks(string(f))
	if err != nil {
		return nil, unlessMissing(err)
	}
	start := filepath.Join(top, filepath.FromSlash(prefix[:strings.LastIndex(prefix, "/")+1]))
	if _, err := os.Lstat(start); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = filepath.WalkDir(start, func(file string, d fs.DirEntry, err error) error {
		locked := errors.Is(err, fs.ErrPermission) && file != start
		if err != nil && !locked || ctx.Err() != nil || d.IsDir() && !locked {
			return errors.Join(err, ctx.Err())
		}
		name, err := filepath.Rel(top, file)
		if name = filepath.ToSlash(name); err == nil && strings.HasPrefix(name, prefix) && name > after &&
			!strings.HasPrefix(d.Name(), ".") { // a file that is being written
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}
