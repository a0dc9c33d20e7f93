//go:build !linux

package terminal

import (
	"errors"
	"io"
	"os"
)

// connect works on Linux alone.
func Connect(*os.File, io.WriteCloser, func()) (*os.File, func() error, error) {
	return nil, nil, errors.New("-t: only sandboxes of Linux have terminals")
}
