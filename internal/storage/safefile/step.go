package safefile

import (
	"errors"
	"os"
	"path/filepath"
)

// The reasons of Step.
var (
	ErrChanged  = errors.New("it changed while it was opened; try again") // or it is a link
	ErrNoFolder = errors.New("it is a file, and a folder is needed there")
)

// stepPortably opens a folder by its name, and refuses one that a link has replaced meanwhile.
func stepPortably(here *os.Root, part string) (*os.Root, error) {
	was, err := here.Lstat(part)
	if err != nil {
		return nil, err
	}
	if !was.IsDir() {
		return nil, ErrNoFolder
	}
	next, err := here.OpenRoot(part)
	if err != nil {
		return nil, err
	}
	if is, err := next.Stat("."); err != nil || !os.SameFile(was, is) {
		_ = next.Close()
		return nil, errors.Join(ErrChanged, err)
	}
	return next, nil
}

// exactPortably opens a folder whose path has no link.
func exactPortably(path string) (*os.Root, error) {
	was, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	root, err := openAs(path, was)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
		return nil, errors.Join(ErrChanged, err, root.Close())
	}
	return root, nil
}

// openAs opens the folder of a path, whose name the root has. It must be the one that was looked at.
func openAs(path string, was os.FileInfo) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	if is, err := root.Stat("."); err != nil || !os.SameFile(was, is) {
		return nil, errors.Join(&os.PathError{Op: "open", Path: path, Err: ErrChanged}, err, root.Close())
	}
	return root, nil
}

// Same reports whether a path without links is the open folder.
func Same(root *os.Root, path string) bool {
	now, err := Exact(path)
	if err != nil {
		return false
	}
	defer now.Close()
	a, err := root.Stat(".")
	b, berr := now.Stat(".")
	return err == nil && berr == nil && os.SameFile(a, b)
}
