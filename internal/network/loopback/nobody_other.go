//go:build !linux

package loopback

import (
	"errors"
	"syscall"
)

var early func(string, string, syscall.RawConn) error

// nobody reports an error after which no process of this machine can listen on ::1: it has no such address.
func nobody(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)
}
