//go:build !unix

package runner

import (
	"errors"
	"io/fs"
)

func owner(fs.FileInfo) (uid, gid int, err error) {
	return 0, 0, errors.New("writable folders need Linux")
}
