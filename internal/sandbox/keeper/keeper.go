//go:build linux && (amd64 || arm64)

// Package keeper holds namespaces that several commands of one named sandbox share. A process of waldo's own, with
// nothing in it, is PID 1 of the shared PID namespace and holds the user and the network namespace. It lives as long as
// a waldo has one end of its socket. Each waldo that runs a command there gives that end and the namespaces to the next
// one, over a socket in a folder of the named sandbox.
package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/userns"
)

// Want lists the namespaces that a command needs.
type Want struct {
	Dir       string // a folder of the named sandbox that only its owner can enter
	Key       string // everything that the command can access: commands share namespaces only if their keys are equal
	Processes bool   // share the PID namespace, too
	UID, GID  int    // of commands, as they see them
}

// Hold is one command's part in shared namespaces.
type Hold struct {
	terms
	files []*os.File // user, network, PID and mount namespace, and waldo's end of the keeper's socket
	close func()     // ends the giving to others
	guard *guard     // of the command; nil: no guard
	group *cgroup.Group
}

// terms are what goes from one waldo to the next beside descriptors.
type terms struct {
	Key       string `json:"key"`
	Processes bool   `json:"processes"`
	UID       int    `json:"uid"` // outside
	GID       int    `json:"gid"`
}

// Join returns the namespaces that run in the folder, or makes some. program is the executable of a machine.
func Join(program *os.File, w Want) (*Hold, error) {
	unlock, err := lock(w.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	h, err := take(w.Dir)
	if err == nil && h == nil {
		h, err = make1(program, w)
	}
	if err != nil {
		return nil, err
	}
	if h.Key != w.Key || h.Processes != w.Processes {
		return nil, errors.Join(sandbox.ErrDiffers, h.Close())
	}
	if err := h.give(w.Dir); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// shared returns what a machine joins.
func (h *Hold) shared() initproc.Shared {
	s := initproc.Shared{Processes: h.Processes}
	for _, f := range h.files[:early] {
		s.Spaces = append(s.Spaces, int(f.Fd()))
	}
	return s
}

// Late returns the namespaces that a prepared process enters, where processes are shared: PID and mount namespace of
// the keeper.
func (h *Hold) Late() []*os.File {
	if !h.Tree() {
		return nil
	}
	return h.files[early:spaces]
}

// IDs returns the user and group outside that commands belong to.
func (h *Hold) IDs() (uid, gid int) { return h.UID, h.GID }

// Close leaves the namespaces. They end with the last one that leaves.
func (h *Hold) Close() error {
	if h == nil {
		return nil
	}
	var errs []error
	if h.guard != nil {
		errs = append(errs, h.guard.end())
		h.guard = nil
	}
	if h.close != nil {
		h.close()
	}
	for _, f := range h.files {
		errs = append(errs, f.Close())
	}
	h.files = nil
	return errors.Join(errs...)
}

// spaces is how many namespaces the keeper gives, and early how many of them a command enters before it is prepared.
const (
	spaces = 4
	early  = 2
)

// make1 starts a keeper.
func make1(program *os.File, w Want) (h *Hold, err error) {
	h = &Hold{terms: terms{Key: w.Key, Processes: w.Processes}}
	if h.UID, h.GID, err = userns.OutsideIDs(); err != nil {
		return nil, err
	}
	st, _, err := initproc.SpawnInit(program, h.UID, h.GID, &cgroup.Group{CloneFD: -1}, 0)
	if err != nil {
		return nil, err
	}
	mapped := h.UID != os.Geteuid() && userns.Administers()
	l := list(w, h.terms, mapped)
	if err = st.SendSandbox([]*os.File{nil}, nil, l.LinkAt(initproc.ProgramBase)); err == nil {
		err = st.HandOver()
	}
	if err == nil && mapped {
		err = mapIDs(st, w, h.terms)
	}
	if err == nil {
		err = st.Ready(l, func(_ uint64, files []*os.File) error { h.files = files; return nil }, nil)
	}
	if err == nil && len(h.files) != spaces {
		err = fmt.Errorf("namespace: the keeper sent %d descriptors", len(h.files))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close(), st.Close())
	}
	h.files = append(h.files, st.Ctl)
	go func() { _, _ = st.Init.Wait() }() // where this waldo is there at its end
	return h, nil
}

// mapIDs maps the user of the commands to the user outside, and lets the keeper continue.
func mapIDs(st *initproc.Stage, w Want, t terms) error {
	for _, f := range []struct{ name, content string }{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("%d %d 1", w.UID, t.UID)},
		{"gid_map", fmt.Sprintf("%d %d 1", w.GID, t.GID)},
	} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", st.Init.Pid, f.name), []byte(f.content), 0); err != nil {
			return fmt.Errorf("namespace: the users of a sandbox: %w", err)
		}
	}
	_, err := st.Ctl.Write([]byte{1})
	return err
}

const atCWD = uint64(unix.AT_FDCWD & 0xffffffffffffffff)

// list returns the keeper's program. It takes its user, leaves the host's root for an empty one with the /proc of its
// PID namespace, which commands copy, brings up the loopback, and sends its namespaces. Then it waits, without
// capabilities, until no waldo holds the other end of its socket.
func list(w Want, t terms, mapped bool) *initproc.List {
	l := &initproc.List{}
	const free = initproc.CtlFD + 1
	write := func(path, content string) {
		l.Call("open "+path, unix.SYS_OPENAT, atCWD, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		l.Call("write "+path, unix.SYS_WRITE, free, []byte(content), len(content))
		l.Call("close "+path, unix.SYS_CLOSE, free)
	}
	l.Call("close what came", unix.SYS_CLOSE_RANGE, free, 0xffffffff, 0)
	ignored := append([]byte{1}, make([]byte, 31)...) // struct sigaction with SIG_IGN: the kernel reaps what ends
	l.Call("reap", unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), ignored, 0, 8)
	if mapped {
		l.Hear()
		l.Call("the sandbox's group", unix.SYS_SETRESGID, w.GID, w.GID, w.GID)
		l.Call("the sandbox's user", unix.SYS_SETRESUID, w.UID, w.UID, w.UID)
	} else {
		write("/proc/self/setgroups", "deny")
		write("/proc/self/uid_map", fmt.Sprintf("%d %d 1", w.UID, t.UID))
		l.Hint(initproc.UserNSHint)
		write("/proc/self/gid_map", fmt.Sprintf("%d %d 1", w.GID, t.GID))
	}
	for _, space := range []string{"user", "net", "pid", "mnt"} {
		l.Call("open its "+space+" namespace", unix.SYS_OPENAT, atCWD, "/proc/self/ns/"+space,
			unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	const next = free + spaces
	l.Call("private mounts", unix.SYS_MOUNT, "none", "/", 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	l.Call("mount the root", unix.SYS_MOUNT, "waldo", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"size=4k,nr_inodes=8,mode=555")
	l.Call("enter the root", unix.SYS_CHDIR, "/tmp")
	l.Call("mkdir proc", unix.SYS_MKDIRAT, atCWD, "proc", 0o555)
	l.Ignore("mount /proc", unix.SYS_MOUNT, "proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"subset=pid")
	l.Ignore("no /proc", unix.SYS_UNLINKAT, atCWD, "proc", unix.AT_REMOVEDIR) // unless it was mounted
	l.Call("mkdir old", unix.SYS_MKDIRAT, atCWD, "old", 0o700)
	l.Call("pivot_root", unix.SYS_PIVOT_ROOT, ".", "old")
	l.Call("enter the root", unix.SYS_CHDIR, "/")
	l.Call("leave the host's root", unix.SYS_UMOUNT2, "/old", unix.MNT_DETACH)
	l.Call("rmdir old", unix.SYS_UNLINKAT, atCWD, "/old", unix.AT_REMOVEDIR)
	request := make([]byte, 40) // struct ifreq
	copy(request, "lo")
	binary.LittleEndian.PutUint16(request[16:], unix.IFF_UP|unix.IFF_RUNNING)
	l.Call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	l.Call("bring up lo", unix.SYS_IOCTL, next, unix.SIOCSIFFLAGS, request)
	l.Call("close the socket", unix.SYS_CLOSE, next)
	l.SendFiles("the namespaces", initproc.RecFiles, free, spaces)
	l.Call("close descriptors", unix.SYS_CLOSE_RANGE, free, 0xffffffff, 0)
	l.Call("new session", unix.SYS_SETSID)
	header := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	l.Call("drop capabilities", unix.SYS_CAPSET, append(header, 0, 0, 0, 0), make([]byte, 24))
	l.Call("no new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	l.Call("not dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	l.Call("report ready", unix.SYS_WRITE, initproc.CtlFD, l.Record(initproc.RecReady), initproc.RecordSize)
	l.Hear() // nothing is ever said: it is the end of the last waldo that ends the wait
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	return l
}

// guard ends what a command has started when its waldo is gone, however that ended: a process of waldo's own waits for
// that and then writes to cgroup.kill of the command's group.
type guard struct{ stage *initproc.Stage }

// watch starts a guard. kill is cgroup.kill of the command's group.
func watch(program, kill *os.File) (*guard, error) {
	l := &initproc.List{}
	l.Call("close the machine", unix.SYS_CLOSE_RANGE, initproc.CtlFD+1, 0xffffffff, 0)
	l.TakeDescriptors(1, atGone)
	l.Call("new session", unix.SYS_SETSID)
	l.Call("report ready", unix.SYS_WRITE, initproc.CtlFD, l.Record(initproc.RecReady), initproc.RecordSize)
	l.Ignore("wait for the end of waldo", unix.SYS_RECVFROM, initproc.CtlFD, l.Bytes(make([]byte, 8)), 1,
		unix.MSG_WAITALL, 0, 0)
	l.Ignore("end what runs", unix.SYS_WRITE, initproc.CtlFD+1, []byte("1"), 1)
	l.Call("end", unix.SYS_EXIT_GROUP, 0)
	st, err := initproc.Spawn(program, os.Geteuid(), os.Getegid())
	if err != nil {
		return nil, err
	}
	if err = st.Send(l.LinkAt(initproc.ProgramBase)); err == nil {
		err = st.SendFiles([]int{int(kill.Fd())})
	}
	if err == nil {
		err = st.Ready(l, nil, nil)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &guard{st}, nil
}

// end has the guard end what is left, and returns when it has.
func (g *guard) end() error {
	err := g.stage.Ctl.Close()
	late := time.AfterFunc(initproc.Patience, func() { _ = g.stage.Init.Kill() })
	defer late.Stop()
	_, werr := g.stage.Init.Wait()
	return errors.Join(err, werr)
}
