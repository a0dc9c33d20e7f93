//go:build unix && !linux

package outside

import (
	"os/exec"
	"syscall"
)

// Start starts the program; on this system one that waldo's sudden end leaves behind sees its input end.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// Kill ends the program and the rest of its process group.
func Kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// Main does nothing: this system has no keeper.
func Main() {}
