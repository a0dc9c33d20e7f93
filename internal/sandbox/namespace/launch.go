//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/machine"
)

// patience is how long a box may take to be prepared, and to be gone once it is killed.
const patience = 10 * time.Second

// stage is a running machine: waldo's end of its socket, and PID 1 of the box.
type stage struct {
	boot *list // what the machine started with
	ctl  *os.File
	init *os.Process
	over bool // the process is PID 1

	files []*os.File // received with the last record and not yet taken
	early []early    // from PID 1, before it was known
}

// early is a record that came before its time, and the descriptors that came with it.
type early struct {
	record
	files []*os.File
}

// maxPlaces is how many writable places a box may have.
const maxPlaces = 32

// handOver waits until the process that was started has made PID 1 of the box, and is gone; a
// zygote stays. From then on PID 1 is the stage's process.
func (s *stage) handOver() error {
	if s.over {
		return nil
	}
	first := s.init
	s.init = nil
	err := s.begin()
	if err != nil && first != nil { // otherwise the first process ends by itself
		_ = first.Kill()
	}
	if first != nil {
		if _, werr := first.Wait(); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	s.over = err == nil
	return err
}

// newStage returns a stage without a process, and the machine's end of its socket.
func newStage(boot *list) (*stage, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("namespace: socketpair: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that deadlines work; it cannot fail
	return &stage{boot: boot, ctl: os.NewFile(uintptr(pair[0]), "box")}, os.NewFile(uintptr(pair[1]), "machine"), nil
}

// spawnInit starts a machine that makes PID 1 of a box, in the version 2 cgroup where that can be.
func spawnInit(machine *os.File, uid, gid int, g *cgroup.Group) (s *stage, joined bool, err error) {
	if g.CloneFD >= 0 {
		s, err = spawn(machine, uid, gid, g.CloneFD)
		joined = err == nil
	}
	if !joined { // this kernel cannot, or something forbids clone3: then any other reason comes again
		s, err = spawn(machine, uid, gid, -1)
	}
	if err == nil {
		if err = s.send(initProgram()); err != nil {
			err = errors.Join(err, s.close())
		}
	}
	return s, joined, err
}

// spawn starts a machine that waits for a program, in a version 2 cgroup or where waldo is (-1). Its
// process stands in for PID 1.
func spawn(machine *os.File, uid, gid, group int) (*stage, error) {
	s, theirs, err := newStage(boot())
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{null, null, null, theirs, machine},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: group >= 0, CgroupFD: group},
	}
	// By a number of the child's own: while the others are put in place there, the child may run
	// over any number that is waldo's. PID 1 of a box closes it.
	const path = "/proc/self/fd/4"
	if uid != os.Geteuid() {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} // no supplementary groups
	}
	common.OnLauncher(func() {
		s.init, err = os.StartProcess(path, []string{"waldo-box"}, attr)
	})
	if err != nil {
		s.init = nil
		return nil, errors.Join(fmt.Errorf("namespace: starting the machine: %w", err), s.close())
	}
	return s, nil
}

// begin takes hold of PID 1.
func (s *stage) begin() error {
	_ = s.ctl.SetDeadline(time.Now().Add(patience))
	for {
		r, err := s.receive()
		switch {
		case errors.Is(err, errGone) && len(s.early) > 0:
			return s.boot.failure(s.early[len(s.early)-1].record, bootBase)
		case err != nil:
			return err
		case r.kind == recPID:
			s.init, err = os.FindProcess(int(r.a))
			return err
		}
		s.early = append(s.early, early{r, s.files}) // PID 1 is faster than the process that made it
		s.files = nil
	}
}

// ready waits until the box is prepared. Descriptors that it sends go to take with the kind of
// their record, failures of optional steps to lost.
func (s *stage) ready(l *list, take func(kind uint64, files []*os.File) error, lost func(error)) error {
	_ = s.ctl.SetDeadline(time.Now().Add(patience))
	defer func() { _ = s.ctl.SetDeadline(time.Time{}) }()
	for {
		r, err := s.next()
		if err != nil {
			return err
		}
		switch r.kind {
		case recReady:
			return nil
		case recPlaces, recWay, recNotice:
			files := s.files
			s.files = nil
			if err := take(r.kind, files); err != nil {
				return err
			}
			continue
		}
		i, ok := l.index(r, programBase)
		if !ok || l.Steps[i].Fail != machine.To(i+1) || l.Steps[i+1].Name != "note" {
			return l.failure(r, programBase)
		}
		lost(l.failure(r, programBase))
	}
}

// send writes a program with its length before it.
func (s *stage) send(b []byte) error {
	_, err := s.ctl.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...))
	if err != nil {
		return fmt.Errorf("namespace: to the box: %w", err)
	}
	return nil
}

// sendBox hands PID 1 the descriptors of its box, in place of a nil /dev/null and those of its cgroups
// last, then its program.
func (s *stage) sendBox(files []*os.File, groups []int, program []byte) error {
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
	return s.sendJob(append(fds, groups...), program)
}

// errGone is what receive says when the box has ended without a word.
var errGone = errors.New("namespace: the box has ended")

// next returns the first early record, or else receives one.
func (s *stage) next() (record, error) {
	if len(s.early) == 0 {
		return s.receive()
	}
	e := s.early[0]
	s.early, s.files = s.early[1:], e.files
	return e.record, nil
}

// receive reads one record; descriptors that come with it go to s.files.
func (s *stage) receive() (record, error) {
	conn, err := s.ctl.SyscallConn()
	if err != nil {
		return record{}, err
	}
	b, oob := make([]byte, recordSize), make([]byte, unix.CmsgSpace(4*maxPlaces))
	for got := 0; got < len(b); {
		var n, oobn int
		rerr := conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), b[got:], oob, unix.MSG_CMSG_CLOEXEC)
			return err != unix.EAGAIN
		})
		if rerr == nil && (err == unix.ECONNRESET || err == nil && n == 0) {
			return record{}, errGone
		}
		if err := errors.Join(rerr, err); err != nil {
			return record{}, fmt.Errorf("namespace: from the box: %w", err)
		}
		got += n
		s.keep(oob[:oobn])
	}
	return parseRecord(b)
}

// keep takes the descriptors out of a control message.
func (s *stage) keep(oob []byte) {
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

// close ends the box and waits until everything in it is dead.
func (s *stage) close() error {
	for _, e := range s.early {
		s.files = append(s.files, e.files...)
	}
	for _, f := range s.files {
		f.Close()
	}
	if s.init != nil {
		_ = s.init.Kill()
		_, _ = s.init.Wait()
		s.init = nil
	}
	return s.ctl.Close()
}

// index returns the step that a record of failure is about.
func (l *list) index(r record, base uint64) (int, bool) {
	i := (r.a - base) / stepSize
	if r.kind != recFailed || r.a < base || i >= uint64(len(l.Steps)) {
		return 0, false
	}
	return int(i), true
}

// failure says in words what a record of failure says.
func (l *list) failure(r record, base uint64) error {
	i, ok := l.index(r, base)
	if !ok {
		return fmt.Errorf("namespace: the box reports %d %#x %d", r.kind, r.a, r.b)
	}
	errno := unix.Errno(r.b)
	err := fmt.Errorf("namespace: %s: %w", l.Steps[i].Name, errno)
	h := l.Steps[i].Hint
	if h == userNSHint || l.Steps[i].NR == unix.SYS_MOUNT && errno == unix.EACCES { // in a namespace of one's own, only a security module says that
		h = common.NamespaceHint(errno)
	}
	if h != "" {
		err = common.Advise(err, h)
	}
	return err
}
