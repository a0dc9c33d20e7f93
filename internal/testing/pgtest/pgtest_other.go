//go:build !linux

package pgtest

import "syscall"

func owner() *syscall.SysProcAttr { return nil }
