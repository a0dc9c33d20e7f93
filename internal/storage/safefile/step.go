package safefile

import (
	"errors"
	"os"
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
