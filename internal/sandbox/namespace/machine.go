//go:build linux && (amd64 || arm64)

package namespace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// machineStart points at the machine's code, in the text of this process.
var machineStart *byte

// machine is the code; it is copied, never called.
//
//lint:ignore U1000 the assembly takes its address
func machine()

// code returns the bytes of the machine.
func code() []byte {
	b := unsafe.Slice(machineStart, 512)
	n := bytes.Index(b, []byte("waldo:end"))
	if n < 0 {
		panic("namespace: the machine has no end")
	}
	return bytes.Clone(b[:n])
}

// ctlFD is the machine's end of the socket to waldo.
const ctlFD = 3

// recordSize is the size of what the machine reports: kind, three words, and a struct rusage.
const recordSize = 4*8 + int(unsafe.Sizeof(unix.Rusage{}))

// The kinds of record.
const (
	recFailed = iota + 1 // a step failed: its address, its errno
	recPID               // PID 1 of the box was made: its number for waldo
	recPlaces            // with it come descriptors of the writable places
	recWay               // with it come the sockets of the way out
	recNotice            // with it comes the listener of the filter
	recReady             // the box is prepared
	recNotRun            // the command could not be executed, for the failures reported before
	recNote              // a check of Probe succeeded: 0, its result
	recExit              // the command ended: 0, status, usage of all that ended
)

// record is what the machine reports.
type record struct {
	kind, a, b, c uint64
	usage         unix.Rusage
}

func parseRecord(b []byte) (r record, err error) {
	if len(b) != recordSize {
		return r, fmt.Errorf("a record of %d bytes, not %d", len(b), recordSize)
	}
	le := binary.LittleEndian
	r.kind, r.a, r.b, r.c = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	_, err = binary.Decode(b[32:], le, &r.usage)
	return r, err
}

// dieAddr is where the boot list reports a failure and ends the process.
const dieAddr = bootBase

// boot is the list that every machine starts with: take a program from waldo and walk it.
func boot() []byte {
	var l list
	l.ignore("report a failure", unix.SYS_WRITE, ctlFD, failureAddr, recordSize) // nobody hears it where waldo is gone
	l.call("end", unix.SYS_EXIT_GROUP, 253)
	l.takeProgram("take the box's program", programBase, at(dieAddr+stepSize))
	return l.link(bootBase)
}

const bootEntry = bootBase + 2*stepSize

// takeProgram appends steps that read a length and as many bytes from waldo to base, and then go
// there. An end of the socket goes to gone.
func (l *list) takeProgram(name string, base uint64, gone target) {
	head := len(l.steps)
	size := value{kind: inStep, n: uint64(head + 1), word: 3} // the length is an argument of the next step
	l.call(name, unix.SYS_RECVFROM, ctlFD, size, 8, unix.MSG_WAITALL, 0, 0)
	l.steps[head].equal, l.steps[head].same = l.structure(num(8)), to(head+1)
	l.call(name, unix.SYS_RECVFROM, ctlFD, base, 0, unix.MSG_WAITALL, 0, 0)
	l.steps[head+1].equal, l.steps[head+1].same = size, at(base)
	for i := head; i <= head+1; i++ {
		l.steps[i].next, l.steps[i].fail = gone, gone
	}
}

// image returns an ELF executable: the machine, its header and the boot list.
func image() []byte {
	const page = 1 << 16 // the largest page of the two architectures
	text := append(make([]byte, 0x1000), code()...)
	data := make([]byte, bootBase-dataBase)
	binary.LittleEndian.PutUint64(data, bootEntry)
	binary.LittleEndian.PutUint64(data[failureAddr-dataBase:], recFailed)
	data = append(data, boot()...)

	var b bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			_ = binary.Write(&b, binary.LittleEndian, x)
		}
	}
	segment := func(kind, flags uint32, off, addr, file, mem uint64) {
		put(kind, flags, off, addr, addr, file, mem, uint64(page))
	}
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	put(uint16(2), elfMachine, uint32(1), uint64(codeBase+0x1000), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(3), uint16(0), uint16(0), uint16(0))
	segment(1, 5, 0, codeBase, uint64(len(text)), uint64(len(text)))     // PT_LOAD, r-x
	segment(1, 6, page, dataBase, uint64(len(data)), memoryEnd-dataBase) // PT_LOAD, rw-
	segment(0x6474e551, 6, 0, 0, 0, 0)                                   // PT_GNU_STACK, rw-
	out := make([]byte, page+len(data))
	copy(out, text)
	copy(out, b.Bytes())
	copy(out[page:], data)
	return out
}

// maxFiles is how many descriptors a machine may be started with.
const maxFiles = 64

// machineFile returns a sealed memfd that holds the image.
func machineFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("waldo-box", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 every memfd may be executed
		fd, err = unix.MemfdCreate("waldo-box", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("namespace: memfd_create: %w; sysctl vm.memfd_noexec must be 0 or 1", err)
	}
	f := os.NewFile(uintptr(fd), "waldo-box")
	if _, err := f.Write(image()); err != nil {
		f.Close()
		return nil, err
	}
	if err := f.Chmod(0o555); err != nil {
		f.Close()
		return nil, err
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
