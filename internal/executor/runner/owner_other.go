//go:build !unix

package runner

import (
	"errors"
	"io/fs"
	"os"
)

func owner(fs.FileInfo) (uid, gid int, err error) {
	return 0, 0, errors.New("writable folders need Linux")
}

// identity returns nothing: the system has no such numbers.
func identity(*os.Root) (device, inode uint64) { return 0, 0 }
