//go:build unix

package secretsource

import (
	"os/exec"
	"syscall"
)

// alone gives a command a process group of its own, which ends with it.
func alone(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
