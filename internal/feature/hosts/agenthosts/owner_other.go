//go:build !unix

package agenthosts

import (
	"io/fs"
	"os"
)

// owner is a file's owner; on this system, the folder's permissions decide.
type owner struct{}

func ownerOf(fs.FileInfo) owner { return owner{} }

func (owner) give(*os.File) error { return nil }
