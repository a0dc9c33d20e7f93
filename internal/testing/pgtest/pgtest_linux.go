package pgtest

import (
	"os"
	"syscall"
)

// owner returns the user of the server, which ends with the test.
func owner() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}
