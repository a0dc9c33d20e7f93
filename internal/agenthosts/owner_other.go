//go:build !unix

package agenthosts

import (
	"io/fs"
	"os"
)

// owner is who a file belongs to; here, whoever the folder says.
type owner struct{}

func ownerOf(fs.FileInfo) owner { return owner{} }

func (owner) give(*os.File) error { return nil }
