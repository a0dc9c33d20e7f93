//go:build !linux

package pgtest

import "syscall"

// A server runs on Linux alone.
const (
	pause  = syscall.Signal(0)
	resume = syscall.Signal(0)
)

func owner() *syscall.SysProcAttr { return nil }
