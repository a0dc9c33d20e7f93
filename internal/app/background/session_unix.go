//go:build unix

package background

import "syscall"

// sessionOfItsOwn keeps a process when the terminal that it was begun at goes away.
func sessionOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
