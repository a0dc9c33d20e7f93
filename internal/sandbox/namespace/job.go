//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/spawn"
)

// reportFD is the socket's descriptor in a command's process, until execve closes it. No descriptor is above it: PID
// 1's are below jobFD+4.
const reportFD = 20

// job returns the program that a command's process executes between fork and execve, without capabilities and behind
// the filter. A forked one continues as the interpreter that it is.
func job(c sandbox.Command, limits []spawn.Rlimit, forked bool) *initproc.List {
	l := &initproc.List{}
	l.Call("keep the socket", unix.SYS_DUP3, initproc.CtlFD, reportFD, unix.O_CLOEXEC)
	for i := range 3 {
		l.Call("standard streams", unix.SYS_DUP3, jobFD+i, i, 0)
	}
	first := 3
	if c.Bridge != nil {
		l.Call("bridge", unix.SYS_DUP3, jobFD+3, 3, 0)
		first = 4
	}
	l.Call("close descriptors", unix.SYS_CLOSE_RANGE, first, reportFD-1, 0)
	l.Call("new session", unix.SYS_SETSID)
	if c.TTY != nil { // opening a terminal makes it the session's own; the filter refuses another session's
		l.Ignore("take the terminal", unix.SYS_OPENAT, atCWD, "/proc/self/fd/0", unix.O_RDWR)
		l.Ignore("close it", unix.SYS_CLOSE_RANGE, first, reportFD-1, 0)
	}
	dir := c.Dir
	if dir == "" {
		dir = "/workspace"
	}
	l.Call(enter+dir, unix.SYS_CHDIR, dir)
	for _, r := range limits {
		b := binary.LittleEndian.AppendUint64(nil, r.Soft)
		b = binary.LittleEndian.AppendUint64(b, r.Hard)
		l.Call("limit "+r.Name, unix.SYS_PRLIMIT64, 0, r.Resource, b, 0)
	}
	if forked {
		comeBack(l)
	} else {
		execute(l, c)
	}
	end := l.Call("end", unix.SYS_EXIT_GROUP, 127)
	l.Steps[end].Next = initvm.To(end)
	l.Die = initvm.To(len(l.Steps))
	l.Call("report a failure", unix.SYS_WRITE, reportFD, uint64(initproc.FailureAddr), initproc.RecordSize)
	l.Steps[len(l.Steps)-1].Next, l.Steps[len(l.Steps)-1].Fail = initvm.To(end), initvm.To(end)
	return l
}

// execute appends the execve of a command.
func execute(l *initproc.List, c sandbox.Command) {
	argv, env := l.Strings(c.Argv), l.Strings(c.Env)
	for _, p := range candidates(c) {
		i := l.Call(execve+p, unix.SYS_EXECVE, p, argv, env)
		l.Steps[i].Fail = initvm.To(i + 1)
		l.Call("report", unix.SYS_WRITE, reportFD, uint64(initproc.FailureAddr), initproc.RecordSize)
	}
	l.Call("report that none ran", unix.SYS_WRITE, reportFD, l.Record(initproc.RecNotRun), initproc.RecordSize)
}

// Prefixes of the steps whose failure is the command's error and not waldo's.
const (
	execve = "execve "
	enter  = "enter "
)

// candidates returns the paths that the command may have, in the order of PATH.
func candidates(c sandbox.Command) []string {
	if strings.Contains(c.Argv[0], "/") {
		return c.Argv[:1]
	}
	dirs := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range c.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	var out []string
	for dir := range strings.SplitSeq(dirs, ":") {
		if strings.HasPrefix(dir, "/") { // never the current folder
			out = append(out, dir+"/"+c.Argv[0])
		}
	}
	return out
}
