//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"
)

// start starts the program; on this system one that waldo's sudden end leaves behind sees its input end.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// kill ends the program and what is left in its process group.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// Main does nothing: nobody keeps a program here.
func Main() {}
