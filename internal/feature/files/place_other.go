//go:build !linux

package files

import (
	"errors"
	"io/fs"
)

const nonblock = 0

// inode is known on Linux alone.
func inode(fs.FileInfo) string { return "" }

// renameOnto renames from to to, and not over a file that is there. One that appears in between is replaced.
func (j *jail) renameOnto(from, to *place) error {
	if _, err := to.dir.Lstat(to.base); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fs.ErrExist, err)
	}
	return j.root.Rename(from.name, to.name)
}
