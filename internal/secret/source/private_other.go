//go:build !unix

package source

import "errors"

// readPrivate refuses: who else can read a file is not something we can tell on this system.
func readPrivate(string) ([]byte, error) {
	return nil, errors.New("secrets in files are not supported on this system; use env:VARIABLE")
}
