//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/landlock"
	"waldo/internal/sandbox/userns"
)

// Probe makes each kind of namespace, then a whole sandbox. In it, it makes system calls that the sandbox must
// refuse, and compares the errors.
func (d *Driver) Probe(ctx context.Context) sandbox.Report {
	r := sandbox.Report{Driver: d.Name(), OK: true}
	machine, err := d.machine()
	if err != nil {
		r.Add(sandbox.Checked("program in memory", true, "", err))
		return r
	}
	for _, n := range namespaces {
		err := makeNamespace(machine, n.flag)
		r.Add(sandbox.Checked(n.name+" namespace", n.need, "made one", err))
	}
	r.Add(landlockAbility())
	if host, err := d.cgroups(); err != nil {
		r.Add(sandbox.Checked("cgroups", false, "", err))
	} else {
		r.Add(host.Report()...)
	}
	r.Add(d.probeSandbox(ctx)...)
	return r
}

var namespaces = []struct {
	name string
	flag int
	need bool
}{
	{"user", 0, true}, {"pid", unix.CLONE_NEWPID, true}, {"mount", unix.CLONE_NEWNS, true},
	{"network", unix.CLONE_NEWNET, true},
	{"ipc", unix.CLONE_NEWIPC, true}, {"host name", unix.CLONE_NEWUTS, true}, {"cgroup", unix.CLONE_NEWCGROUP, false},
}

// makeNamespace makes a user namespace and in it one of another kind, as sandboxes do.
func makeNamespace(machine *os.File, flag int) error {
	uid, gid, err := userns.OutsideIDs()
	if err != nil {
		return err
	}
	var l initproc.List
	l.Call("user namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	l.Hint(initproc.UserNSHint)
	l.Call("namespace", unix.SYS_UNSHARE, flag)
	l.Hint(initproc.UserNSHint)
	l.Call("report", unix.SYS_WRITE, initproc.CtlFD, l.Record(initproc.RecReady), initproc.RecordSize)
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	s, err := initproc.Spawn(machine, uid, gid)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(l.LinkAt(initproc.ProgramBase)); err != nil {
		return err
	}
	return s.Ready(&l, nil, nil)
}

func landlockAbility() sandbox.Ability {
	rules, err := landlock.Open(landlock.Rules{AnyFile: true, AnyTCP: true})
	if err == nil && rules.FD < 0 {
		err = errors.New("this kernel has none; Linux 6.12 and later can keep a sandbox from the abstract sockets and " +
			"processes of others")
	}
	if rules.FD >= 0 {
		unix.Close(rules.FD)
	}
	a := sandbox.Checked("landlock", false,
		fmt.Sprintf("ABI %d: abstract sockets and signals stay in the sandbox", rules.ABI), err)
	if err == nil && len(rules.Lost) > 0 {
		a.OK, a.What = false, strings.Join(rules.Lost, "; ")
	}
	return a
}

// check is one system call made inside a sandbox, and its expected result.
type check struct {
	name  string
	nr    uintptr
	args  []any
	errno unix.Errno // 0: it must succeed
	want  uint64     // with this result, where it succeeds
	need  bool
	hint  string
}

// checks are made by the process of a command: behind everything that holds a command. The
// number of a process that is outside is given.
func checks(outside int) []check {
	address := binary.LittleEndian.AppendUint16(nil, unix.AF_INET)
	address = append(address, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0) // 192.0.2.1:80, RFC 5737
	return []check{
		{name: "not root", nr: unix.SYS_GETUID, want: sandbox.InsideID, need: true},
		{name: "no new privileges", nr: unix.SYS_PRCTL, args: []any{unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0},
			want: 1, need: true},
		{name: "no capability to regain", nr: unix.SYS_PRCTL, args: []any{unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0},
			want: 0, need: true},
		{name: "seccomp", nr: unix.SYS_UNSHARE, args: []any{0}, errno: unix.EPERM, need: true},
		{name: "no clone3", nr: unix.SYS_CLONE3, args: []any{0, 0}, errno: unix.ENOSYS, need: true},
		{name: "read-only root", nr: unix.SYS_OPENAT, args: []any{atCWD, "/x", unix.O_CREAT | unix.O_WRONLY, 0o600},
			errno: unix.EROFS, need: true},
		{name: "read-only /usr", nr: unix.SYS_OPENAT, args: []any{atCWD, "/usr/x", unix.O_CREAT | unix.O_WRONLY, 0o600},
			errno: unix.EROFS, need: true},
		{name: "host's files are absent", nr: unix.SYS_OPENAT, args: []any{atCWD, "/etc/shadow", unix.O_RDONLY, 0},
			errno: unix.ENOENT, need: true},
		{name: "host's processes are absent", nr: unix.SYS_KILL, args: []any{outside, 0}, errno: unix.ESRCH, need: true},
		{name: "fresh /proc", nr: unix.SYS_OPENAT, args: []any{atCWD, "/proc/self/status", unix.O_RDONLY, 0}, want: anything,
			hint: "programs that read /proc/self will not work; run the container with systempaths=unconfined or procMount: " +
				"Unmasked"},
		{name: "bounded bytes", nr: unix.SYS_FALLOCATE, args: []any{probeFD, 0, 0, 2 * probeBytes},
			errno: unix.ENOSPC, need: true},
		{name: "bounded inodes", nr: unix.SYS_MKDIRAT, args: []any{atCWD, "/tmp/d", 0o700}, errno: unix.ENOSPC, need: true},
		{name: "network is unreachable", nr: unix.SYS_CONNECT, args: []any{probeFD + 1, address, 16},
			errno: unix.ENETUNREACH, need: true},
	}
}

const (
	anything   = ^uint64(0)
	probeFD    = 30
	probeBytes = 1 << 20
)

// probeSandbox makes a sandbox and the checks in it.
func (d *Driver) probeSandbox(ctx context.Context) []sandbox.Ability {
	p := sandbox.Profile{ID: "s_probe", Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{{Target: "/tmp", Bytes: probeBytes, Inodes: 2}}, // the root, and the file
		Limits: sandbox.Limits{Wall: initproc.Patience, CPU: initproc.Patience, Memory: 64 << 20, Pids: 8, Files: 64,
			Disk: 4 * probeBytes, Inodes: 64, Output: 1 << 10}}
	started := time.Now()
	made, err := d.Start(ctx, p)
	if err != nil {
		return []sandbox.Ability{sandbox.Checked("sandbox", true, "", err)}
	}
	defer made.Close()
	b := made.(*instance)
	out := []sandbox.Ability{sandbox.Checked("sandbox", true,
		fmt.Sprintf("made one in %.1f ms", facts.MS(time.Since(started))), nil)}
	for _, w := range b.warnings {
		why := errors.New(w)
		if w == facts.NoMemoryCgroup {
			why = errors.New("no memory cgroup for this user: the limit applies to each process, and the sum is measured " +
				"every 20 ms")
		}
		out = append(out, sandbox.Checked("all of the sandbox", false, "", why))
	}
	out = append(out, overlayAbility(b))
	all := checks(b.init.Pid)
	list := checkList(all)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return append(out, sandbox.Checked("checks", true, "", err))
	}
	defer null.Close()
	fd := int(null.Fd())
	if err := b.stage.SendJob([]int{fd, fd, fd}, list.LinkAt(initproc.JobBase)); err != nil {
		return append(out, sandbox.Checked("checks", true, "", err))
	}
	for _, c := range all {
		rec, err := b.stage.Receive()
		if err == nil {
			err = c.judge(rec)
		}
		a := sandbox.Checked(c.name, c.need, c.expected(), err)
		if err != nil && a.Hint == "" {
			a.Hint = c.hint
		}
		out = append(out, a)
	}
	return out
}

// overlayAbility says whether the machine's own folders are shown through overlays.
func overlayAbility(b *instance) sandbox.Ability {
	var err error
	if errno, refused := b.driver.refused.of("/usr"); refused {
		err = fmt.Errorf("the kernel refuses an overlay of /usr: %w", errno)
	}
	a := sandbox.Checked("overlays", false, "sockets, pipes, locks and watches of shown folders stay in the sandbox", err)
	if err != nil {
		a.Hint = "/usr is shown as it is, and inotify is refused; other folders are copied. Load the module overlay, " +
			"and mount nothing below /usr"
	}
	return a
}

// checkList is the job that makes the checks and reports each.
func checkList(all []check) *initproc.List {
	l := &initproc.List{}
	open := l.Call("file", unix.SYS_OPENAT, atCWD, "/tmp/f", unix.O_CREAT|unix.O_RDWR, 0o600)
	l.Result(open, l.Call("keep it", unix.SYS_DUP3, 0, probeFD, 0), 0)
	socket := l.Call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
	l.Result(socket, l.Call("keep it", unix.SYS_DUP3, 0, probeFD+1, 0), 0)
	for _, c := range all {
		rec := l.Record(initproc.RecNote)
		i := l.Call(c.name, c.nr, c.args...)
		l.Steps[i].Store = rec.Plus(16)
		l.Steps[i].Fail = initvm.To(i + 2)
		after := l.Call("report", unix.SYS_WRITE, initproc.CtlFD, rec, initproc.RecordSize)
		l.Steps[after].Next = initvm.To(i + 3)
		l.Call("report", unix.SYS_WRITE, initproc.CtlFD, uint64(initproc.FailureAddr), initproc.RecordSize)
	}
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	return l
}

func (c check) expected() string {
	switch {
	case c.errno != 0:
		return "refused with " + unix.ErrnoName(c.errno)
	case c.want == anything:
		return "works"
	}
	return fmt.Sprintf("found %d", c.want)
}

// judge compares the result of the check with the expected one.
func (c check) judge(rec initproc.Record) error {
	got := unix.Errno(0)
	if rec.Kind == initproc.RecFailed {
		got = unix.Errno(rec.B)
	}
	switch {
	case got != c.errno && got == 0:
		return fmt.Errorf("not refused: want %s", unix.ErrnoName(c.errno))
	case got != c.errno && c.errno == 0:
		return fmt.Errorf("refused with %s", unix.ErrnoName(got))
	case got != c.errno:
		return fmt.Errorf("refused with %s, not %s", unix.ErrnoName(got), unix.ErrnoName(c.errno))
	case got == 0 && c.want != anything && rec.B != c.want:
		return fmt.Errorf("found %d, not %d", rec.B, c.want)
	}
	return nil
}
