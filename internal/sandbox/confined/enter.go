//go:build linux && (amd64 || arm64)

package confined

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/landlock"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/seccomp"
	"waldo/internal/sandbox/spawn"
	"waldo/internal/sandbox/stdio"
)

// The names under which waldo starts itself.
const (
	supervisor = "waldo-confined"
	entrance   = "waldo-confined-enter"
)

// order is the message that starts the processes of one command.
type order struct {
	Argv, Env []string
	Dir       string
	MilliCPU  int64
	Bridge    bool // descriptor 3 is one, and stays
	UID, GID  int
	Limits    sandbox.Limits
	Rules     landlock.Rules
}

// begun is the byte that the supervisor sends before its report, once the command is executed.
const begun = '\n'

// report is sent by the supervisor at the end. The entrance sends one if it fails before it becomes the
// command.
type report struct {
	Status syscall.WaitStatus
	CPU    time.Duration
	Maxrss int64  // bytes, of the largest process; 0: none was larger than the entrance
	Within int64  // bytes that no process had more of
	NotRun string // why nothing was run
	Absent bool   // the program does not exist
}

// Main is for the start of main: where waldo was started by this package, it does not return.
func Main() {
	var err error
	switch os.Args[0] {
	case supervisor:
		err = supervise()
	case entrance:
		err = enter()
	default:
		return
	}
	if err != nil {
		_ = json.NewEncoder(os.NewFile(5, "report")).Encode(report{NotRun: stdio.NotRun(err),
			Absent: errors.Is(err, unix.ENOENT)})
	}
	os.Exit(0)
}

// supervise runs one command. Descriptors 0 to 2 are its streams, 3 its bridge, 4 the order, and 5 takes the
// report. waldo holds 6 open for as long as the command may live.
func supervise() error {
	runtime.LockOSThread() // the command dies with this thread
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	said, saying, err := os.Pipe()
	if err != nil {
		return err
	}
	p, err := os.StartProcess("/proc/self/exe", []string{entrance}, &os.ProcAttr{
		Env:   []string{"GOGC=off"}, // a collection that is under way ends badly when the limits come
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(3, "bridge"), os.NewFile(4, "order"), saying},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	saying.Close()
	if err != nil {
		return err
	}
	end := sync.OnceFunc(func() { go endless() })
	go func() {
		_, _ = os.NewFile(6, "life").Read(make([]byte, 1)) // waldo wants the end, or is gone
		end()
	}()
	var r report
	for d := json.NewDecoder(said); d.Decode(&r) == nil; { // until it is executed
	}
	told := os.NewFile(5, "report")
	if r.NotRun == "" {
		_, _ = told.Write([]byte{begun})
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && err != unix.EINTR {
			break // no child is left
		}
		if pid == p.Pid {
			r.Status = syscall.WaitStatus(status)
			end() // a run ends with its command
		}
	}
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	entered := r.Maxrss // the kernel counts it for the program that is executed in its place too
	r.Within = u.Maxrss << 10
	if r.CPU, r.Maxrss = time.Duration(u.Utime.Nano()+u.Stime.Nano()), r.Within; r.Maxrss <= entered+1<<20 {
		r.Maxrss = 0
	}
	return json.NewEncoder(told).Encode(r)
}

// endless kills all below the supervisor until that is gone itself.
func endless() {
	for {
		endAll(os.Getpid())
		time.Sleep(time.Millisecond)
	}
}

// endAll kills all below a process.
func endAll(pid int) {
	for _, c := range procstat.Children(pid) {
		_ = unix.Kill(c, unix.SIGSTOP) // so that it makes no more while we look
		endAll(c)
		_ = unix.Kill(c, unix.SIGKILL)
	}
}

// enter becomes the command: it gives up everything, then executes it.
func enter() error {
	runtime.LockOSThread() // the rest applies to this thread, the only one that survives execve
	var o order
	if err := json.NewDecoder(os.NewFile(4, "order")).Decode(&o); err != nil {
		return err
	}
	rules, err := landlock.Open(o.Rules)
	if err != nil {
		return err
	}
	filter, err := seccomp.Compile(seccomp.Host(), seccomp.Profile{Bare: true})
	if err != nil {
		return err
	}
	if err := become(o); err != nil {
		return err
	}
	if _, err := spawn.Pin(0, o.MilliCPU); err != nil {
		return err
	}
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	mine, _ := json.Marshal(report{Maxrss: u.Maxrss << 10}) // now: there may be no memory for it within the limits
	command, err := prepare(o)
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(filter.Len()), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	heedSignals()
	if err := limit(o); err != nil {
		return err
	}
	above := uint(3)
	if o.Bridge {
		above = 4
	}
	if err := unix.CloseRange(above, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules.FD), 0, 0); e != 0 {
		return fmt.Errorf("landlock: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	_, _ = unix.Write(5, mine)
	return command.execute()
}

const ignored = 1 // SIG_IGN, in the handler's field

// heedSignals restores the default action of every signal that waldo ignores, as under nohup: the command would
// ignore it too. execve does that for signals with a handler.
func heedSignals() {
	for sig := uintptr(1); sig <= 64; sig++ {
		var now, zero [4]uint64 // struct sigaction begins with the handler
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if e == 0 && now[0] == ignored {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zero)), 0, 8, 0, 0)
		}
	}
}

// become gives up the user, where waldo is root, and dies with the supervisor.
func become(o order) error {
	// fails if the capability does not exist or waldo has no capabilities; both are harmless
	for c := uintptr(0); c < 64; c++ {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	if o.UID != os.Geteuid() {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(o.GID, o.GID, o.GID),
			syscall.Setresuid(o.UID, o.UID, o.UID)); err != nil {
			return err
		}
	}
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// limit sets what the kernel holds each process to.
func limit(o order) error {
	l := o.Limits
	tasks := tasksOf(o.UID)
	for _, r := range []struct {
		resource int
		n        int64
	}{{unix.RLIMIT_NOFILE, l.Files}, {unix.RLIMIT_FSIZE, l.Disk}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_STACK, 8 << 20},
		{unix.RLIMIT_MEMLOCK, 64 << 10}, {unix.RLIMIT_MSGQUEUE, 0}, {unix.RLIMIT_SIGPENDING, 256},
		{unix.RLIMIT_CPU, int64(l.CPU/time.Second) + 1}, {unix.RLIMIT_NPROC, l.Pids + tasks}, {unix.RLIMIT_DATA, l.Memory}} {
		var have unix.Rlimit
		if err := unix.Prlimit(0, r.resource, nil, &have); err != nil {
			return err
		}
		n := min(uint64(r.n), have.Max)
		if err := unix.Prlimit(0, r.resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return fmt.Errorf("limit %d: %w", r.resource, err)
		}
	}
	return nil
}

// tasksOf counts the threads that a user has already, without ours.
func tasksOf(uid int) (n int64) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		var st unix.Stat_t
		if unix.Stat(p, &st) != nil || int(st.Uid) != uid || filepath.Base(p) == fmt.Sprint(os.Getpid()) {
			continue
		}
		tasks, _ := os.ReadDir(p + "/task")
		n += int64(len(tasks))
	}
	return n
}

// programs lists where the command's program may be.
func programs(o order) (paths []string) {
	if strings.Contains(o.Argv[0], "/") {
		return o.Argv[:1]
	}
	for _, dir := range searched(o.Env) {
		paths = append(paths, filepath.Join(dir, o.Argv[0]))
	}
	return paths
}

// image holds a command in the form that execve takes. It is made before the limits apply: under them Go could
// lack the memory to make it.
type image struct {
	names     []string // where its program may be
	paths     []*byte  // the same
	argv, env []*byte
	failed    *os.PathError
}

func prepare(o order) (*image, error) {
	m := &image{names: programs(o), failed: &os.PathError{Op: "execute", Path: o.Argv[0], Err: unix.ENOENT}}
	var errs [3]error
	m.paths, errs[0] = syscall.SlicePtrFromStrings(m.names)
	m.argv, errs[1] = syscall.SlicePtrFromStrings(o.Argv)
	m.env, errs[2] = syscall.SlicePtrFromStrings(o.Env)
	return m, errors.Join(errs[:]...)
}

// execute returns only where nothing could be executed.
func (m *image) execute() error {
	for i, name := range m.names {
		_, _, e := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(m.paths[i])),
			uintptr(unsafe.Pointer(&m.argv[0])), uintptr(unsafe.Pointer(&m.env[0])))
		if e != unix.ENOENT {
			m.failed.Path, m.failed.Err = name, e
		}
	}
	return m.failed
}

// searched returns the absolute folders of PATH.
func searched(env []string) (out []string) {
	dirs := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	for d := range strings.SplitSeq(dirs, ":") {
		if strings.HasPrefix(d, "/") {
			out = append(out, d)
		}
	}
	return out
}
