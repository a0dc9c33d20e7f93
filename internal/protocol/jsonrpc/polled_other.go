//go:build !linux

package jsonrpc

import "io"

// Polled returns in as it is.
func Polled(in io.Reader) (io.Reader, func()) { return in, func() {} }
