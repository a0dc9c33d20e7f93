//go:build !unix

package background

import "syscall"

func sessionOfItsOwn() *syscall.SysProcAttr { return nil }
