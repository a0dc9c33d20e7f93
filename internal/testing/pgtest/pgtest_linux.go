package pgtest

import (
	"os"
	"syscall"
)

// What Pause and Resume send.
const (
	pause  = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// owner returns the user of the server, which ends with the test.
func owner() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}
