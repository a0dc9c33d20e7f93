//go:build !unix

package sandboxes

import (
	"errors"
	"os"
)

var errLock = errors.New("named sandboxes need a system with flock")

func lock(*os.File) (bool, error) { return false, errLock }

func wait(*os.File, bool) error { return errLock }
