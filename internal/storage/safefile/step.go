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
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	is, err := root.Stat(".")
	real, rerr := filepath.EvalSymlinks(path)
	if err = errors.Join(err, rerr); err != nil || real != path || !os.SameFile(was, is) {
		return nil, errors.Join(ErrChanged, err, root.Close())
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
