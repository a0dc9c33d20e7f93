package agenthosts

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File is a host's file as it was read, to be replaced whole or not at all.
type File struct {
	Path    string // where it really is: links of the person's own were followed
	Text    []byte // empty if the file does not exist
	Exists  bool
	project string // as given to Open
	root    string // no step of the path leaves it
	name    string // below root
	mode    fs.FileMode
	owner   owner
}

// Open reads a regular file of at most 16 MiB, and never blocks on a pipe. With a project, no link may lead out of
// that folder and the file must not be a link, because the folder's author is not the operator. Without a project,
// links belong to the person and are followed.
func Open(path, project string) (*File, error) {
	f := &File{Path: path, project: project, root: project, mode: 0o600}
	if project == "" {
		real, err := follow(path)
		if err != nil {
			return nil, err
		}
		f.Path, f.root = real, filepath.Dir(real)
	} else {
		f.mode = 0o644
	}
	var err error
	if f.name, err = filepath.Rel(f.root, f.Path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.root)
	if errors.Is(err, fs.ErrNotExist) && project == "" {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	st, err := root.Lstat(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		return nil, &Problem{
			File: path, Text: "it is a link, and a project's links are not followed", Do: "put a file in its place",
		}
	}
	if err := f.read(root, path); err != nil {
		return nil, err
	}
	return f, nil
}

// follow returns where path really is, whether or not there is a file.
func follow(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return "", &Problem{
			File: path, Text: "it is a link to a file that is not there", Do: "make the file, or remove the link",
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return filepath.Join(dir, filepath.Base(path)), err
}

func (f *File) read(root *os.Root, shown string) error {
	file, err := root.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return &Problem{File: shown, Text: "it is not a regular file"}
	}
	f.Text, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(f.Text) > maxFile {
		return &Problem{File: shown, Text: fmt.Sprintf("more than %d bytes are not read", maxFile)}
	}
	f.Exists, f.mode, f.owner = true, st.Mode().Perm(), ownerOf(st)
	return err
}

// Replace writes new text in the place of the file: beside it first, with the same mode and owner,
// then by one rename. A file that has changed since it was read is left alone.
func (f *File) Replace(text []byte) error {
	if err := os.MkdirAll(f.root, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if dir := filepath.Dir(f.name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := f.unchanged(); err != nil {
		return err
	}
	temp := f.name + ".waldo-" + rand.Text()[:8]
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if f.Exists {
		err = errors.Join(err, f.owner.give(file))
	}
	if err = errors.Join(err, file.Chmod(f.mode), file.Sync(), file.Close()); err == nil {
		err = root.Rename(temp, f.name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	f.Text, f.Exists = text, true
	return nil
}

// Remove removes the file, where it has not changed since it was read.
func (f *File) Remove() error {
	if err := f.unchanged(); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(f.name)
}

func (f *File) unchanged() error {
	now, err := Open(f.Path, f.project)
	if err != nil {
		return err
	}
	if now.Exists != f.Exists || !bytes.Equal(now.Text, f.Text) {
		return &Problem{File: f.Path, Text: "it has changed while waldo was at it; nothing was written", Do: "try again"}
	}
	return nil
}
