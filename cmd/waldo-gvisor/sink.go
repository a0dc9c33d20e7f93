//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"

	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/seccomp"
)

// The sink is waldo's part of gVisor's kernel. It is called at every clone, and refuses those beyond the limit
// of processes. It is also called at the end of the system calls in table, and records refusals. It writes to a
// page that the sandbox's PID 1 shares, so nothing is lost when gVisor is killed. The guest cannot reach that
// page.
const sinkName = "waldo"

// notes is the page. PID 1 reads it after the kernel in the sandbox is gone, and trusts none of it further than
// that kernel.
type notes struct {
	peak    atomic.Int64  // tasks, the most there were at once
	refused atomic.Int64  // clones
	used    atomic.Uint32 // bytes of text
	ended   atomic.Uint32 // 1: the command has ended and all other tasks are stopped; PID 1 waits for it
	status  atomic.Uint32 // of the command then, as wait(2) tells it
	_       uint32
	text    [notesSize - 32]byte
}

// notesSize bounds the page, in bytes; maxDenials bounds the denials noted in it.
const (
	notesSize  = 32 << 10
	maxDenials = 64
)

func mapNotes(f *os.File) (*notes, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, notesSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the notes: %w", err)
	}
	return (*notes)(unsafe.Pointer(&b[0])), nil
}

func (n *notes) unmap() {
	_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(n)), notesSize))
}

// futex operations on a page that two processes share (futex(2)).
const (
	futexWait = 0
	futexWake = 1
)

func wake(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
}

// wait waits until the command has ended and all tasks are stopped, or until leave.
func (n *notes) wait() (still bool) {
	for n.ended.Load() == 0 {
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&n.ended)), futexWait, 0, 0, 0, 0)
	}
	return n.ended.Load() == 1
}

// leave ends a wait.
func (n *notes) leave() {
	n.ended.CompareAndSwap(0, 2)
	wake(&n.ended)
}

// denials returns what was noted. A line that is not in our form is left out.
func (n *notes) denials() []job.Denial {
	out := []job.Denial{}
	used := min(int(n.used.Load()), len(n.text))
	for line := range bytes.Lines(n.text[:used]) {
		var d job.Denial
		if json.Unmarshal(line, &d) == nil && slices.Contains(job.Seen, d.Kind) && len(out) < maxDenials {
			out = append(out, d)
		}
	}
	return out
}

// register makes the sink known to gVisor. made is called in PID 1 with the notes of each run.
func register(made func(*notes)) {
	seccheck.RegisterSink(seccheck.SinkDesc{
		Name: sinkName,
		Setup: func(map[string]any) (*os.File, error) {
			id, err := unix.MemfdCreate("waldo-notes", unix.MFD_CLOEXEC)
			if err != nil {
				return nil, fmt.Errorf("making the notes: %w", err)
			}
			f := os.NewFile(uintptr(id), "notes")
			if err := f.Truncate(notesSize); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			n, err := mapNotes(f)
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			made(n)
			return f, nil
		},
		New: func(config map[string]any, end *fd.FD) (seccheck.Sink, error) {
			limit, ok := config["pids"].(float64)
			if !ok || limit < 1 || end == nil {
				return nil, errors.New("the sink has no limit of processes, or no notes")
			}
			f := end.ReleaseToFile("notes")
			defer f.Close()
			n, err := mapNotes(f)
			if err != nil {
				return nil, err
			}
			n.peak.Store(1)
			return &sink{notes: n, limit: int64(limit)}, nil
		},
	})
}

// sinkSettings is the file that has gVisor load the sink.
func sinkSettings(pids int64) ([]byte, error) {
	points := []map[string]string{{"name": "sentry/clone"}, {"name": "sentry/task_exit"},
		{"name": fmt.Sprintf("syscall/sysno/%d/enter", unix.SYS_EXIT_GROUP)},
		{"name": fmt.Sprintf("syscall/sysno/%d/enter", unix.SYS_KILL)}}
	for _, sysno := range []uintptr{unix.SYS_SENDMSG, unix.SYS_SENDMMSG} { // table has sendto
		points = append(points, map[string]string{"name": fmt.Sprintf("syscall/sysno/%d/exit", sysno)})
	}
	for sysno := range table {
		points = append(points, map[string]string{"name": fmt.Sprintf("syscall/sysno/%d/exit", sysno)})
	}
	return json.Marshal(map[string]any{"trace_session": map[string]any{
		"name": seccheck.DefaultSessionName, "points": points, "ignore_missing": true,
		"sinks": []any{map[string]any{"name": sinkName, "config": map[string]any{"pids": pids}}},
	}})
}

type sink struct {
	seccheck.SinkDefaults
	notes *notes
	limit int64
	over  atomic.Bool // the command has ended

	mu    sync.Mutex
	noted map[job.Denial]bool
}

// Name returns the sink's name.
func (*sink) Name() string { return sinkName }

// Clone refuses a process in new namespaces, and a process or thread beyond the limit. It also refuses one with
// its maker's parent, because a child of the command's parent would pass for the command (see there). The new
// task is counted already; zombies count too.
func (s *sink) Clone(ctx context.Context, _ seccheck.FieldSet, info *pb.CloneInfo) error {
	if info.Flags&(newNamespaces|unix.CLONE_PARENT) != 0 {
		s.note(job.Denial{Kind: syscalls, What: "clone", Errno: "EPERM"})
		return unix.EPERM
	}
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return nil
	}
	n := int64(t.Kernel().RootPIDNamespace().NumTasks())
	if n > s.limit {
		s.notes.refused.Add(1)
		return unix.EAGAIN
	}
	for old := s.notes.peak.Load(); n > old && !s.notes.peak.CompareAndSwap(old, n); old = s.notes.peak.Load() {
	}
	return nil
}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// command returns the task where it is of the command: every other process but the first has a parent.
func command(ctx context.Context) *kernel.Task {
	t := kernel.TaskFromContext(ctx)
	if t == nil || t.Parent() != nil || t.ThreadGroup() == t.Kernel().GlobalInit() {
		return nil
	}
	return t
}

// TaskExit records the end of a command that a signal killed. By then the command has released its resources.
func (s *sink) TaskExit(ctx context.Context, _ seccheck.FieldSet, info *pb.TaskExit) error {
	if t := command(ctx); t != nil && t == t.ThreadGroup().Leader() && info.ExitStatus != 0 {
		s.end(t, uint32(info.ExitStatus))
	} // with 0 its other threads can continue
	return nil
}

// end stops all tasks of the sandbox for good and records the command's status. The calling task runs until it
// is stopped too, before it executes any code of the guest.
func (s *sink) end(t *kernel.Task, status uint32) {
	if s.over.Swap(true) {
		return
	}
	go func() {
		t.Kernel().Pause() // waits until all are
		s.notes.status.Store(status)
		s.notes.ended.Store(1)
		wake(&s.notes.ended)
	}()
	for !t.Kernel().IsPaused() {
		runtime.Gosched()
	}
}

// enter sees a call that ends a process. For the command's own, it stops the sandbox at once: the kernel takes
// longer to take the process apart than most scripts run.
func (s *sink) enter(ctx context.Context, info *pb.Syscall) {
	t := command(ctx)
	switch {
	case t == nil:
	case info.Sysno == unix.SYS_EXIT_GROUP:
		s.end(t, uint32(info.Arg1&0xff)<<8)
	case info.Arg2&^0xff&0xffffffff == seccomp.EndSignal: // kill; refused by every kernel
		s.end(t, uint32(info.Arg2&0xff)<<8)
	}
}

// RawSyscall notes a system call that was refused, and the one by which the command ends.
func (s *sink) RawSyscall(ctx context.Context, _ seccheck.FieldSet, info *pb.Syscall) error {
	if info.Exit == nil {
		s.enter(ctx, info)
		return nil
	}
	if info.Exit.Errorno == 0 {
		if t := kernel.TaskFromContext(ctx); t != nil && sends[uintptr(info.Sysno)] {
			if name := asked(t, info); name != "" {
				s.note(job.Denial{Kind: network, What: name, Errno: "EAI_AGAIN"})
			}
		}
		return nil
	}
	c, ok := table[uintptr(info.Sysno)]
	e := unix.Errno(info.Exit.Errorno)
	if !ok || !c.refusal(e) {
		return nil
	}
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return nil
	}
	s.note(job.Denial{Kind: c.kind, What: c.describe(t, info), Errno: unix.ErrnoName(e)})
	return nil
}

// note adds a denial, once.
func (s *sink) note(d job.Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted[d] || len(s.noted) >= maxDenials {
		return
	}
	if s.noted == nil {
		s.noted = map[job.Denial]bool{}
	}
	s.noted[d] = true
	line, err := json.Marshal(d)
	used := int(s.notes.used.Load())
	if err != nil || used+len(line)+1 > len(s.notes.text) {
		return
	}
	copy(s.notes.text[used:], append(line, '\n'))
	s.notes.used.Store(uint32(used + len(line) + 1))
}
