package outside

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keeper is the name under which waldo starts itself to keep a program.
const keeper = "waldo-keeper"

// Start starts the program below a keeper process. The keeper ends the program and all its descendants, also daemons
// and new sessions. It does so on request, when the program ends, and when waldo ends in any way (prctl(2),
// PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER). The keeper exits as the program did, by the same signal.
func Start(cmd *exec.Cmd) error {
	cmd.Args = append([]string{keeper, cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() { // the kernel watches the thread that started it, so one thread stays until it has ended
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

// patience limits how long a keeper takes to end a program and its descendants.
const patience = 10 * time.Second

// Kill makes the keeper end the program, also if the program has stopped it. A keeper that does not react is killed,
// and the program with it.
func Kill(cmd *exec.Cmd) {
	if cmd.Process.Signal(syscall.SIGTERM) != nil { // it is over
		return
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	time.AfterFunc(patience+time.Second, func() { _ = cmd.Process.Kill() }) // an error: it is over
}

// Main runs as the keeper and exits, if this process was started as one; otherwise it returns. A program that calls
// Start must call it first.
func Main() {
	if os.Args[0] == keeper && len(os.Args) > 2 {
		os.Exit(keep(os.Args[1], os.Args[2:]))
	}
}

func keep(path string, argv []string) int {
	runtime.LockOSThread() // the program ends with the thread that started it
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	var p *os.Process
	if err == nil {
		p, err = os.StartProcess(path, argv, &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "waldo:", err)
		return 126
	}
	_, _ = os.Stdin.Close(), os.Stdout.Close()
	over := make(chan *os.ProcessState, 1)
	go func() { s, _ := p.Wait(); over <- s }()
	var ended *os.ProcessState // nil: ended on request
	select {
	case ended = <-over:
	case <-told:
	}
	for begun := time.Now(); !alone() && time.Since(begun) < patience; time.Sleep(time.Millisecond) {
	}
	if ended == nil {
		return 0
	}
	return like(ended.Sys().(syscall.WaitStatus))
}

// like ends this process as the program has ended: by the same signal, or it returns the exit status.
func like(how syscall.WaitStatus) int {
	if !how.Signaled() {
		return how.ExitStatus()
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // no core dump of the keeper itself
	var usual [4]uint64                              // struct sigaction with SIG_DFL
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(how.Signal()), uintptr(unsafe.Pointer(&usual)), 0, 8, 0, 0)
	_ = unix.Kill(os.Getpid(), how.Signal())
	time.Sleep(time.Second) // another thread may be the one that it comes to
	return 128 + int(how.Signal())
}

// alone kills and reaps the children of this process, among them the orphans of those that are dead, and
// reports whether there are none any more.
func alone() bool {
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // pid (name) state parent …
		if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 1 &&
			string(f[1]) == strconv.Itoa(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil && err != unix.EINTR {
			return true
		} else if pid == 0 {
			return false
		}
	}
}
