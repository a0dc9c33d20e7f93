//go:build !unix

package secretsource

import (
	"errors"
	"io/fs"
)

const onlyMine, mineToChange = fs.FileMode(0o077), fs.FileMode(0o022)

// readPrivate refuses: who else can read a file is not something we can tell on this system.
func readPrivate(string, fs.FileMode) ([]byte, string, error) {
	return nil, "", errors.New("secrets in files are not supported on this system; use env:VARIABLE")
}

func stampOf(string) string { return "" }
