//go:build !linux

package e2b

import "os"

func newTerminal() (master, slave *os.File, err error) {
	return nil, nil, fail(501, "terminals need Linux")
}

func resize(*os.File, size) error { return fail(501, "terminals need Linux") }
