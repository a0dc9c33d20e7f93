//go:build !linux

package files

import (
	"errors"
	"io/fs"
	"os"
)

const nonblock = 0

func step(here *os.Root, part string) (*os.Root, error) { return stepPortably(here, part) }

// inode is known on Linux alone.
func inode(fs.FileInfo) string { return "" }

// renameOnto renames from to to, and not over a file that is there. One that appears in between is replaced.
func (j *jail) renameOnto(from, to *place) error {
	if _, err := to.dir.Lstat(to.base); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fs.ErrExist, err)
	}
	return j.root.Rename(from.name, to.name)
}
