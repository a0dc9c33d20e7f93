//go:build linux && (amd64 || arm64)

package initproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/ready"
	"waldo/internal/sandbox/spawn"
)

// Patience is how long a sandbox may take to be prepared, and to be gone once it is killed.
const Patience = 10 * time.Second

// Stage is a running machine: waldo's end of its socket, and PID 1 of the sandbox.
type Stage struct {
	boot *List // the machine's first list
	Ctl  *os.File
	FD   int // of Ctl
	Init *os.Process
	over bool // the process is PID 1
	Made bool // PID 1 may be there, and is not known
	// HandsOn says that the process will be followed by another one, as List.HandOn makes it.
	HandsOn bool

	files []*os.File // received with the last record and not yet taken
	early []early    // from PID 1, before it was known
}

// early is a record that came before its time, and the descriptors that came with it.
type early struct {
	Record
	files []*os.File
}

// MaxPlaces is how many volumes a sandbox may have.
const MaxPlaces = 32

// HandOver waits until the process that was started has made PID 1 of the sandbox, and is gone; a zygote stays.
// From then on PID 1 is the stage's process.
func (s *Stage) HandOver() error { return s.handOver(time.Now().Add(Patience)) }

func (s *Stage) handOver(end time.Time) error {
	if s.over {
		return nil
	}
	first := s.Init
	s.Init, s.Made = nil, false
	err := s.begin(end)
	if err != nil {
		_ = unix.Shutdown(s.FD, unix.SHUT_WR) // a PID 1 that waits for a message ends
		if first != nil {                     // otherwise the first process ends when it has reported
			_ = first.Kill()
		}
	}
	if first != nil {
		if _, werr := first.Wait(); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	if err != nil && s.Init == nil {
		_ = s.begin(time.Now().Add(goneWithin)) // it may have said by now which process PID 1 is, which Close reaps
	}
	s.over = err == nil
	return err
}

// goneWithin is the time that a PID 1 without a number may take to end.
const goneWithin = time.Second

// New returns a stage without a process, and the machine's end of its socket.
func New(boot *List) (*Stage, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("namespace: socketpair: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that deadlines work; it cannot fail
	return &Stage{boot: boot, FD: pair[0], Ctl: os.NewFile(uintptr(pair[0]), "sandbox")},
		os.NewFile(uintptr(pair[1]), "machine"), nil
}

// SpawnInit starts a machine that makes PID 1 of a sandbox, in the version 2 cgroup if possible. It runs on as
// many processors as milli thousandths fill (0: on all).
func SpawnInit(machine *os.File, uid, gid int, g *cgroup.Group, milli int64) (s *Stage, joined bool, err error) {
	return spawnInit(machine, uid, gid, g, milli, func(s *Stage) error { return s.Send(initProgram()) })
}

// Shared are namespaces that commands of one sandbox share: user, network and PID, by descriptors.
type Shared struct {
	Spaces    []int
	Processes bool // also the PID namespace
}

// SpawnJoined is SpawnInit for a sandbox that shares namespaces. If it shares the PID namespace, its first
// process is not PID 1 there: the caller must end the processes that it leaves running.
func SpawnJoined(machine *os.File, uid, gid int, g *cgroup.Group, milli int64,
	in Shared) (s *Stage, joined bool, err error) {
	return spawnInit(machine, uid, gid, g, milli, func(s *Stage) error {
		return errors.Join(s.Send(joinProgram(in.Processes)), s.SendFiles(in.Spaces))
	})
}

func spawnInit(machine *os.File, uid, gid int, g *cgroup.Group, milli int64,
	begin func(*Stage) error) (s *Stage, joined bool, err error) {
	if g.CloneFD >= 0 {
		s, err = startProcess(machine, uid, gid, g.CloneFD, milli)
		joined = err == nil
	}
	if !joined { // this kernel cannot, or something forbids clone3: then any other reason comes again
		s, err = startProcess(machine, uid, gid, -1, milli)
	}
	if err == nil {
		s.Made = true
		if err = begin(s); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return s, joined, err
}

// Spawn starts a machine that waits for a program. Its process acts as PID 1.
func Spawn(machine *os.File, uid, gid int) (*Stage, error) {
	return startProcess(machine, uid, gid, -1, 0)
}

// startProcess is Spawn, in a version 2 cgroup or where waldo is (-1), and on so many processors.
func startProcess(machine *os.File, uid, gid, group int, milli int64) (*Stage, error) {
	s, theirs, err := New(boot())
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{null, null, null, theirs, machine},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: group >= 0, CgroupFD: group},
	}
	// By a number of the child's own: while the others are put in place there, the child may run over any
	// number that is waldo's. PID 1 of a sandbox closes it.
	const path = "/proc/self/fd/4"
	if uid != os.Geteuid() {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} // no supplementary groups
	}
	spawn.OnLauncher(func() {
		var undo func()
		if undo, err = spawn.Pin(0, milli); err == nil {
			defer undo()
			s.Init, err = os.StartProcess(path, []string{"waldo-sandbox"}, attr)
		}
	})
	if err != nil {
		s.Init = nil
		return nil, errors.Join(fmt.Errorf("namespace: starting the machine: %w", err), s.Close())
	}
	return s, nil
}

// begin takes hold of PID 1.
func (s *Stage) begin(end time.Time) error {
	_ = s.Ctl.SetDeadline(end)
	for {
		r, err := s.Receive()
		switch {
		case errors.Is(err, ErrGone) && len(s.early) > 0:
			return s.boot.Failure(s.early[len(s.early)-1].Record, BootBase)
		case err != nil:
			return err
		case r.Kind == RecPID:
			s.Init, err = os.FindProcess(int(r.A))
			return err
		}
		s.early = append(s.early, early{r, s.files}) // PID 1 is faster than the process that made it
		s.files = nil
	}
}

// Ready waits until the sandbox is prepared. Descriptors that it sends go to take with the kind of their
// record, failures of optional steps to lost.
func (s *Stage) Ready(l *List, take func(kind uint64, files []*os.File) error, lost func(error)) error {
	_ = s.Ctl.SetDeadline(time.Now().Add(Patience))
	defer func() { _ = s.Ctl.SetDeadline(time.Time{}) }()
	for {
		r, err := s.next()
		if err != nil {
			return err
		}
		switch r.Kind {
		case RecReady:
			return nil
		case RecPID:
			if err := s.follow(r); err != nil {
				return err
			}
			continue
		case RecPlaces, RecFiles, RecNotice:
			files := s.files
			s.files = nil
			if err := take(r.Kind, files); err != nil {
				return err
			}
			continue
		}
		i, ok := l.Index(r, ProgramBase)
		if !ok || l.Steps[i].Fail != initvm.To(i+1) || l.Steps[i+1].Name != "note" {
			return l.Failure(r, ProgramBase)
		}
		lost(l.Failure(r, ProgramBase))
	}
}

// follow takes hold of the process that goes on in place of the one before, and lets it.
func (s *Stage) follow(r Record) error {
	before := s.Init
	var err error
	if s.Init, err = os.FindProcess(int(r.A)); err != nil {
		return err
	}
	s.HandsOn = false
	_, err = before.Wait()
	_, werr := s.Ctl.Write([]byte{1})
	return errors.Join(err, werr)
}

// await waits until a process that hands on has done so, or has ended.
func (s *Stage) await() {
	_ = s.Ctl.SetDeadline(time.Now().Add(goneWithin))
	for s.HandsOn {
		r, err := s.Receive()
		if err != nil || r.Kind == RecPID && s.follow(r) != nil {
			return
		}
	}
}

// Send writes a program with its length before it.
func (s *Stage) Send(b []byte) error {
	_, err := s.Ctl.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...))
	if err != nil {
		return fmt.Errorf("namespace: to the sandbox: %w", err)
	}
	return nil
}

// SendSandbox hands PID 1 the descriptors of its sandbox, in place of a nil /dev/null and those of its cgroups
// last, then its program.
func (s *Stage) SendSandbox(files []*os.File, groups []int, program []byte) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	var fds []int
	for _, f := range files {
		if f == nil {
			f = null
		}
		fds = append(fds, int(f.Fd()))
	}
	return s.SendJob(append(fds, groups...), program)
}

// ErrGone is the error of receive when the sandbox has ended without a report.
var ErrGone = errors.New("namespace: the sandbox has ended")

// next returns the first early record, or else receives one.
func (s *Stage) next() (Record, error) {
	if len(s.early) == 0 {
		return s.Receive()
	}
	e := s.early[0]
	s.early, s.files = s.early[1:], e.files
	return e.Record, nil
}

// Receive reads one record; descriptors that come with it go to s.files.
func (s *Stage) Receive() (Record, error) {
	conn, err := s.Ctl.SyscallConn()
	if err != nil {
		return Record{}, err
	}
	b, oob := make([]byte, RecordSize), make([]byte, unix.CmsgSpace(4*(MaxPlaces+MaxFiles)))
	for got := 0; got < len(b); {
		var n, oobn int
		rerr := conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), b[got:], oob, unix.MSG_CMSG_CLOEXEC)
			return err != unix.EAGAIN
		})
		if rerr == nil && (err == unix.ECONNRESET || err == nil && n == 0) {
			return Record{}, ErrGone
		}
		if err := errors.Join(rerr, err); err != nil {
			return Record{}, fmt.Errorf("namespace: from the sandbox: %w", err)
		}
		got += n
		s.keep(oob[:oobn])
	}
	return parseRecord(b)
}

// keep takes the descriptors out of a control message.
func (s *Stage) keep(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			s.files = append(s.files, os.NewFile(uintptr(fd), "place"))
		}
	}
}

// Close ends the sandbox and waits until everything in it is dead.
func (s *Stage) Close() error {
	if s.Made {
		_ = unix.Shutdown(s.FD, unix.SHUT_WR) // a process that waits for a message ends
		_ = s.HandOver()                      // PID 1 is reaped as any other
	}
	if s.HandsOn && s.Init != nil {
		_ = unix.Shutdown(s.FD, unix.SHUT_WR)
		s.await()
	}
	for _, e := range s.early {
		s.files = append(s.files, e.files...)
	}
	for _, f := range s.files {
		f.Close()
	}
	if s.Init != nil {
		_ = s.Init.Kill()
		_, _ = s.Init.Wait()
		s.Init = nil
	}
	return s.Ctl.Close()
}

// Silent returns an error if a socket is readable. PID 1's is readable when its command has ended; the
// listener's when a call waits. Negative numbers are skipped.
func Silent(fds ...int) error {
	p := make([]unix.PollFd, 0, 2)
	for _, fd := range fds {
		p = append(p, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if n, err := ready.Now(p...); n != 0 || err != nil {
		return ErrGone
	}
	return nil
}

// ReceiveFiles receives a record of a kind and the n descriptors that come with it.
func (s *Stage) ReceiveFiles(kind uint64, n int) ([]*os.File, error) {
	r, err := s.Receive()
	files := s.files
	s.files = nil
	if err == nil && r.Kind == kind && len(files) == n {
		return files, nil
	}
	for _, f := range files {
		f.Close()
	}
	return nil, errors.Join(err, fmt.Errorf("namespace: the sandbox reports %d, with %d descriptors", r.Kind, len(files)))
}

// SendJob hands over the descriptors, then the program.
func (s *Stage) SendJob(fds []int, program []byte) error {
	if err := s.SendFiles(fds); err != nil {
		return err
	}
	return s.Send(program)
}

// SendFiles hands over descriptors.
func (s *Stage) SendFiles(fds []int) error {
	conn, err := s.Ctl.SyscallConn()
	if err != nil {
		return err
	}
	werr := conn.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), []byte{1}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := errors.Join(werr, err); err != nil {
		return fmt.Errorf("namespace: to the sandbox: %w", err)
	}
	return nil
}
