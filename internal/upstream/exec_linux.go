package upstream

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts the program so that it dies with waldo, however that ends (prctl(2), PR_SET_PDEATHSIG).
// The kernel watches the thread that started it, so one thread stays until the program has ended.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		for err = unix.EINTR; cmd.Process != nil && err == unix.EINTR; { // it is left for Wait to reap
			err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
	}()
	return <-started
}
