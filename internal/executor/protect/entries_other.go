//go:build !unix

package protect

import (
	"io/fs"
	"os"
)

func entries(f *os.File) ([]fs.DirEntry, error) { return f.ReadDir(-1) }
