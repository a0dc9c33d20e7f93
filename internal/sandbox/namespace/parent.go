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
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/machine"
	"waldo/internal/sandbox/zygote"
)

// A zygote is an interpreter that holds a machine and makes PID 1 of one box after the other. PID 1 and
// the command are copies of it; where another command would be executed, the machine returns to the
// interpreter.

// zygoteFD is where a zygote keeps its end of the socket to waldo. What comes with a box is below.
const zygoteFD = 200

const sigactionSize = 32 // of a struct sigaction, as the kernel has it

// handled are the signals about which interpreters do other than the kernel: Python ignores two.
var handled = []int{int(unix.SIGINT), int(unix.SIGPIPE), int(unix.SIGXFSZ)}

// Where a zygote goes on when a box cannot be made, and when it has been.
const (
	zygoteFail = bootBase + 2*stepSize
	zygoteNext = bootBase + 3*stepSize
)

// zygoteBoot is the list that the machine in a zygote starts with: take the socket of a box, make its
// PID 1, go on to the next.
var zygoteBoot = sync.OnceValue(func() *list {
	l := newBoot()
	l.ignore("report that there is no box", unix.SYS_WRITE, ctlFD, failureAddr, recordSize)
	l.ignore("forget the box", unix.SYS_CLOSE_RANGE, ctlFD, zygoteFD-1, 0)
	room := unix.CmsgSpace(4)                                                                                                             // one descriptor, which lands at ctlFD
	head := l.structure(num(0), num(0), l.structure(l.structure(num(0)), num(1)), num(1), l.bytes(make([]byte, room)), num(room), num(0)) // struct msghdr
	take := l.call("take the socket of a box", unix.SYS_RECVMSG, zygoteFD, head, 0)
	l.steps[take].equal, l.steps[take].same, l.steps[take].next, l.steps[take].fail = l.structure(num(1)), to(take+1), at(goneAddr), at(goneAddr)
	l.makeInit(at(zygoteFail), at(zygoteNext))
	first := len(l.steps)
	l.call("keep the socket", unix.SYS_DUP3, zygote.ControlFD, zygoteFD, unix.O_CLOEXEC)
	l.call("close the rest", unix.SYS_CLOSE_RANGE, ctlFD, zygoteFD-1, 0)
	for i, sig := range handled {
		l.call("keep what is done about a signal", unix.SYS_RT_SIGACTION, sig, 0, handlerAddr+i*sigactionSize, 8)
	}
	hello := l.call("say that it waits", unix.SYS_WRITE, zygoteFD, l.record(recReady), recordSize)
	l.steps[hello].next = to(take)
	l.entry = first
	return l
})

// bootOfZygote is what the machine in a zygote starts with.
func bootOfZygote() machine.Boot {
	l := zygoteBoot()
	return machine.Boot{Entry: bootBase + uint64(l.entry)*stepSize, At: bootBase, Steps: l.link(bootBase), Failed: recFailed, Room: memoryEnd - dataBase}
}

// zygoteMachine is what an interpreter is told after its head: the addresses and sizes of a
// machine's code and data, how much room the data has, then both.
func zygoteMachine() []byte {
	text, data := machine.Code(), bootOfZygote().Data()
	out := fmt.Appendf(nil, "%11d %11d %11d %11d %11d\n", codeBase, len(text), dataBase, len(data), memoryEnd-dataBase)
	return append(append(out, text...), data...)
}

// rotation says when a zygote is replaced: its children share its places in memory and its seed of
// hashes, which one of them may have found out for the next.
var rotation = zygote.Rotation{Most: 5000, Age: 10 * time.Minute}

// zygoteEnv is the environment of a zygote; that of a command comes with its box. PID 1 lets go of
// the memory that rseq(2) would have the kernel write to.
var zygoteEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "GLIBC_TUNABLES=glibc.pthread.rseq=0"}

// headOf is what a command that is forked reads in place of its head: how much it hurries, and its
// environment.
func headOf(c sandbox.Command, hurry int) string {
	env := strings.Join(c.Env, "\x00")
	return fmt.Sprintf("%d %11d\n%s\n", hurry, len(env), env)
}

// newNursery returns where the driver keeps its zygotes.
func newNursery() *zygote.Nursery {
	return &zygote.Nursery{Rotation: rotation, Start: func(ctx context.Context, k zygote.Kind) (*zygote.Zygote, error) {
		uid, gid, err := common.OutsideIDs()
		if err != nil {
			return nil, err
		}
		return zygote.Start(ctx, zygote.Options{
			Argv: strings.Split(k.Argv, "\x00"), Env: zygoteEnv,
			Stdin: append([]byte(k.Head), zygoteMachine()...), Hello: recordSize, UID: uid, GID: gid,
		})
	}}
}

// kindOf returns which zygote boxes of the profile are forked from, and whether there can be one:
// an interpreter of the host's own root, by its path.
func kindOf(p sandbox.Profile) (zygote.Kind, bool) {
	a := p.Ahead
	if a == nil || a.Zygote == "" || p.Template.Dir != "" || len(a.Argv) == 0 || !strings.HasPrefix(a.Argv[0], "/") {
		return zygote.Kind{}, false
	}
	return zygote.Kind{Argv: strings.Join(a.Argv, "\x00"), Head: a.Zygote, Domain: a.Domain}, true
}

// Ready makes sure of a zygote that boxes of the profile are forked from, where there can be one.
func (d *Driver) Ready(ctx context.Context, p sandbox.Profile) error {
	k, ok := kindOf(p)
	if !ok {
		return nil
	}
	return d.nursery.Keep(ctx, k)
}

// Forked reports whether the box comes from a zygote.
func (b *box) Forked() bool { return b.forked }

// Hurry is Warm without a rehearsal.
func (b *box) Hurry(ctx context.Context) error { return b.warm(ctx, 1) }

// Close ends the zygotes and what they made ahead. Boxes stay.
func (d *Driver) Close() error { return errors.Join(d.nursery.Close(), d.spares.close()) }

// fork has a zygote make PID 1 of a box, in the way that spawn has a machine.
func fork(z *zygote.Zygote) (*stage, error) {
	s, theirs, err := newStage(zygoteBoot())
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := z.Fork(int(theirs.Fd())); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// mapIDs lets the box's user stand for one outside that is not the zygote's, as only root can, and
// tells PID 1 so.
func (b *box) mapIDs() error {
	proc := fmt.Sprintf("/proc/%d/", b.init.Pid)
	uid, gid := b.profile.Template.IDs()
	for _, f := range []struct{ name, content string }{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("%d %d 1", uid, b.uid)}, {"gid_map", fmt.Sprintf("%d %d 1", gid, b.gid)},
	} {
		if err := os.WriteFile(proc+f.name, []byte(f.content), 0); err != nil {
			return fmt.Errorf("namespace: the users of a box: %w", err)
		}
	}
	_, _ = b.stage.ctl.Write([]byte{1}) // a box that is gone has left its reason behind
	return nil
}

// becomeMapped appends the waiting for mapIDs and the change to the box's user.
func (s *setup) becomeMapped() {
	uid, gid := s.profile.Template.IDs()
	s.hear()
	s.call("the box's group", unix.SYS_SETRESGID, gid, gid, gid)
	s.call("the box's user", unix.SYS_SETRESUID, uid, uid, uid)
}

// letGo appends the end of what PID 1 has of the interpreter's memory: only the machine stays.
func (s *setup) letGo() {
	s.ignore("let go of the interpreter", unix.SYS_MUNMAP, 0, codeBase)
	s.ignore("let go of the interpreter", unix.SYS_MUNMAP, memoryEnd, machine.TaskSize-memoryEnd)
}

// comeBack appends the end of a job that is the interpreter's own: the process may be looked into
// like one that was executed, keeps nothing of how its box was made, and goes on.
func (l *list) comeBack() {
	for i, sig := range handled {
		l.call("what the interpreter does about a signal", unix.SYS_RT_SIGACTION, sig, handlerAddr+i*sigactionSize, 0, 8)
	}
	l.call("dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	l.call("forget the box's program", unix.SYS_MUNMAP, programBase, programMax)
	l.call("close the socket", unix.SYS_CLOSE, reportFD)
	l.call("come back", ^uintptr(0))
}

var (
	_ sandbox.Forker = (*Driver)(nil)
	_ sandbox.Forked = (*box)(nil)
)
