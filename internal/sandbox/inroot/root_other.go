//go:build !linux

package inroot

import (
	"errors"
	"io/fs"
	"os"
)

// Root is a folder whose files are found as a process with that root would find them. Only Linux has such folders.
type Root struct{}

// Open returns errors.ErrUnsupported.
func Open(string) (*Root, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Root) Close() error { return nil }

// Stat returns errors.ErrUnsupported.
func (*Root) Stat(string) (string, fs.FileInfo, error) { return "", nil, errors.ErrUnsupported }

// Open returns errors.ErrUnsupported.
func (*Root) Open(string) (*os.File, string, error) { return nil, "", errors.ErrUnsupported }
