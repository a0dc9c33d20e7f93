//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/zygote"
)

// A zygote is an interpreter that holds a machine and makes PID 1 of one sandbox after the other. PID 1 and the
// command are copies of it; where another command would be executed, the machine returns to the interpreter.

// zygoteFD is a zygote's end of its socket to waldo. Descriptors that come with a sandbox are below it.
const zygoteFD = 200

const sigactionSize = 32 // of a struct sigaction, as the kernel has it

// handled are the signals about which interpreters do other than the kernel: Python ignores two.
var handled = []int{int(unix.SIGINT), int(unix.SIGPIPE), int(unix.SIGXFSZ)}

// The zygote's addresses after a sandbox failed, and after it was made.
const (
	zygoteFail = initproc.BootBase + 2*initproc.StepSize
	zygoteNext = initproc.BootBase + 3*initproc.StepSize
)

// zygoteBoot returns the first list of the machine in a zygote: take the socket of a sandbox, make its PID 1, repeat.
var zygoteBoot = sync.OnceValue(func() *initproc.List {
	l := initproc.NewBoot()
	l.Ignore("report that the sandbox failed", unix.SYS_WRITE, initproc.CtlFD, initproc.FailureAddr, initproc.RecordSize)
	l.Ignore("forget the sandbox", unix.SYS_CLOSE_RANGE, initproc.CtlFD, zygoteFD-1, 0)
	// one descriptor, which lands at stage.CtlFD
	room := unix.CmsgSpace(4)
	// struct msghdr
	head := l.Structure(initvm.Num(0), initvm.Num(0), l.Structure(l.Structure(initvm.Num(0)), initvm.Num(1)),
		initvm.Num(1), l.Bytes(make([]byte, room)), initvm.Num(room), initvm.Num(0))
	take := l.Call("take the socket of a sandbox", unix.SYS_RECVMSG, zygoteFD, head, 0)
	l.Steps[take].Equal, l.Steps[take].Same, l.Steps[take].Next, l.Steps[take].Fail = l.Structure(initvm.Num(1)),
		initvm.To(take+1), initvm.At(initproc.Gone), initvm.At(initproc.Gone)
	l.MakeInit(initvm.At(zygoteFail), initvm.At(zygoteNext))
	first := len(l.Steps)
	l.Call("keep the socket", unix.SYS_DUP3, zygote.ControlFD, zygoteFD, unix.O_CLOEXEC)
	l.Call("close the rest", unix.SYS_CLOSE_RANGE, initproc.CtlFD, zygoteFD-1, 0)
	for i, sig := range handled {
		l.Call("keep what is done about a signal", unix.SYS_RT_SIGACTION, sig, 0, initproc.HandlerAddr+i*sigactionSize, 8)
	}
	hello := l.Call("say that it waits", unix.SYS_WRITE, zygoteFD, l.Record(initproc.RecReady), initproc.RecordSize)
	l.Steps[hello].Next = initvm.To(take)
	l.Entry = first
	return l
})

// bootOfZygote returns the first list of the machine in a zygote.
func bootOfZygote() initvm.Boot {
	l := zygoteBoot()
	return initvm.Boot{
		Entry: initproc.BootBase + uint64(l.Entry)*initproc.StepSize, At: initproc.BootBase,
		Steps: l.LinkAt(initproc.BootBase), Failed: initproc.RecFailed, Room: initproc.MemoryEnd - initproc.DataBase,
	}
}

// zygoteMachine returns the input of an interpreter after its head: the addresses and sizes of a machine's code and
// data, the space for the data, then both.
func zygoteMachine() []byte {
	text, data := initvm.Code(), bootOfZygote().Data()
	out := fmt.Appendf(nil, "%11d %11d %11d %11d %11d\n", initproc.CodeBase, len(text), initproc.DataBase, len(data),
		initproc.MemoryEnd-initproc.DataBase)
	return append(append(out, text...), data...)
}

// rotation says when a zygote is replaced: its children share its places in memory and its seed of
// hashes, which one of them may have found out for the next.
var rotation = zygote.Rotation{Most: 5000, Age: 10 * time.Minute}

// zygoteEnv is the environment of a zygote; a command's comes with its sandbox. rseq is off, because PID 1 unmaps the
// memory that the kernel would write to. Functions of libraries are resolved once, and not in each sandbox.
var zygoteEnv = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "GLIBC_TUNABLES=glibc.pthread.rseq=0", "LD_BIND_NOW=1",
}

// headOf returns the input of a forked command in place of its head: its urgency, and its environment.
func headOf(c sandbox.Command, fast int) string {
	env := strings.Join(c.Env, "\x00")
	return fmt.Sprintf("%d %11d\n%s\n", fast, len(env), env)
}

// newZygotes returns where the driver keeps its zygotes.
func newZygotes() *zygote.Pool {
	return &zygote.Pool{Rotation: rotation, Start: func(ctx context.Context, k zygote.Kind) (*zygote.Zygote, error) {
		uid, gid, err := userns.OutsideIDs()
		if err != nil {
			return nil, err
		}
		return zygote.Start(ctx, zygote.Options{
			Argv: strings.Split(k.Argv, "\x00"), Env: zygoteEnv,
			Stdin: append([]byte(k.Head), zygoteMachine()...), Hello: initproc.RecordSize, UID: uid, GID: gid,
		})
	}}
}

// kindOf returns which zygote sandboxes of the profile are forked from, and whether there can be one: an interpreter
// of the host's own root, by its path, where sandboxes of one zygote can have users of their own.
func kindOf(p sandbox.Profile) (zygote.Kind, bool) {
	a := p.Prestart
	if a == nil || a.Zygote == "" || os.Geteuid() == 0 && !userns.Administers() || p.Template.Dir != "" ||
		len(a.Argv) == 0 || !strings.HasPrefix(a.Argv[0], "/") {
		return zygote.Kind{}, false
	}
	return zygote.Kind{Argv: strings.Join(a.Argv, "\x00"), Head: a.Zygote, Domain: a.Domain}, true
}

// Ready makes sure of a zygote that sandboxes of the profile are forked from, where there can be one.
func (d *Driver) Ready(ctx context.Context, p sandbox.Profile) error {
	k, ok := kindOf(p)
	if !ok {
		return nil
	}
	return d.zygotes.Keep(ctx, k)
}

// Forked reports whether the sandbox comes from a zygote.
func (b *instance) Forked() bool { return b.forked }

// WarmFast is Warm without a rehearsal.
func (b *instance) WarmFast(ctx context.Context) error { return b.warm(ctx, 1) }

// Close ends the zygotes and the sandboxes that were prepared. Sandboxes in use stay.
func (d *Driver) Close() error {
	return errors.Join(d.zygotes.Close(), d.ready.Close(), d.usernsHolders.Close())
}

// fork has a zygote make PID 1 of a sandbox, in the way that stage.Spawn has a machine.
func fork(z *zygote.Zygote) (*initproc.Stage, error) {
	s, theirs, err := initproc.New(zygoteBoot())
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := z.Fork(int(theirs.Fd())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Made = true
	return s, nil
}

// mapIDs maps the sandbox's user to one outside that is not the zygote's, which only root can do, and notifies PID 1.
func (b *instance) mapIDs() error {
	proc := fmt.Sprintf("/proc/%d/", b.init.Pid)
	uid, gid := b.profile.Template.IDs()
	for _, f := range []struct{ name, content string }{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("%d %d 1", uid, b.uid)},
		{"gid_map", fmt.Sprintf("%d %d 1", gid, b.gid)},
	} {
		if err := os.WriteFile(proc+f.name, []byte(f.content), 0); err != nil {
			return fmt.Errorf("namespace: the users of a sandbox: %w", err)
		}
	}
	_, _ = b.stage.Ctl.Write([]byte{1}) // a sandbox that is gone has left its reason behind
	return nil
}

// becomeMapped appends the waiting for mapIDs and the change to the sandbox's user.
func (s *setup) becomeMapped() {
	uid, gid := s.profile.Template.IDs()
	s.Hear()
	s.Call("the sandbox's group", unix.SYS_SETRESGID, gid, gid, gid)
	s.Call("the sandbox's user", unix.SYS_SETRESUID, uid, uid, uid)
}

// A forked PID 1 has the interpreter's memory, which its first command is to have. To copy it once more costs more than
// all namespaces. So the command's process begins with PID 1's own memory, and waits until PID 1 has executed a machine
// of its own and has let go of that memory. The end of a pipe ends the wait.

// Descriptors of a forked PID 1 until its first command is there: a machine, and the ends of the pipe.
const (
	machineFD = reportFD + 1
	gateFD    = machineFD + 1
	gateEndFD = gateFD + 1
)

// firstCommand is the number of the first command's process for PID 1: nothing else was made in the namespace.
const firstCommand = 2

// keepMachine appends the making of these descriptors. The end that PID 1 holds outlives its execve.
func (s *setup) keepMachine() {
	s.Call("keep the machine", unix.SYS_DUP3, s.late, machineFD, unix.O_CLOEXEC)
	s.Call("close descriptors", unix.SYS_CLOSE_RANGE, treeFD+1, machineFD-1, 0)
	s.Call("close descriptors", unix.SYS_CLOSE_RANGE, gateFD, 0xffffffff, 0)
	s.Call("a pipe", unix.SYS_PIPE2, make([]byte, 8), 0)
	s.Call("keep the pipe", unix.SYS_DUP3, jobFD, gateFD, unix.O_CLOEXEC)
	s.Call("keep the pipe", unix.SYS_DUP3, jobFD+1, gateEndFD, 0)
}

// leaveInterpreter appends the taking of the first command, whose process gets PID 1's memory, and the execve.
func (s *setup) leaveInterpreter() {
	clone := takeCommand(&s.List, unix.CLONE_VM|int(unix.SIGCHLD))
	s.Call("leave the interpreter", unix.SYS_EXECVEAT, machineFD, "", s.Strings([]string{"waldo-sandbox"}),
		s.Strings(nil), unix.AT_EMPTY_PATH)
	own := s.Call("close PID 1's end", unix.SYS_CLOSE, gateEndFD)
	s.Steps[clone].Same = initvm.To(own)
	wait := s.Call("wait for memory of its own", unix.SYS_READ, gateFD, make([]byte, 8), 1)
	s.Steps[wait].Equal, s.Steps[wait].Same = s.Structure(initvm.Num(0)), initvm.To(wait+1)
	s.Steps[wait].Next = initvm.At(initproc.Gone)
	last := s.Call("close what is PID 1's", unix.SYS_CLOSE_RANGE, machineFD, 0xffffffff, 0)
	s.Steps[last].Next = initvm.At(initproc.JobBase)
}

// afterInterpreter is the program of a PID 1 that has left the interpreter. Its process is hidden from the command
// before that goes on.
var afterInterpreter = sync.OnceValue(func() []byte {
	l := &initproc.List{}
	l.Call("not dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	l.Ignore("unmap the stack", unix.SYS_MUNMAP, initproc.MemoryEnd, initvm.TaskSize-initproc.MemoryEnd)
	last := l.Call("let the command go on", unix.SYS_CLOSE_RANGE, jobFD, 0xffffffff, 0)
	l.Steps[last].Next = initvm.To(commands(l, false))
	return l.LinkAt(initproc.ProgramBase)
})

// comeBack appends the end of a job that continues as the interpreter. The process becomes dumpable like an executed
// one, drops all state of its sandbox's preparation, and returns to Python.
func comeBack(l *initproc.List) {
	for i, sig := range handled {
		l.Call("signal action of the interpreter", unix.SYS_RT_SIGACTION, sig, initproc.HandlerAddr+i*sigactionSize, 0, 8)
	}
	l.Call("dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	l.Call("forget the sandbox's program", unix.SYS_MUNMAP, initproc.ProgramBase, initproc.ProgramMax)
	l.Call("close the socket", unix.SYS_CLOSE, reportFD)
	l.Call("come back", ^uintptr(0))
}
