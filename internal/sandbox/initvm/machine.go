//go:build linux && (amd64 || arm64)

package initvm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout of the machine's memory. No interpreter uses these addresses, so an interpreter can hold a machine
// too. DataBase holds the address of the first step, then the record of the last failure: FailedKind, the step,
// the errno. The rest belongs to the program.
const (
	CodeBase    = 0x70000000
	DataBase    = 0x70200000
	FailureAddr = DataBase + 8
)

// machineStart points at the machine's code, in the text of this process.
var machineStart *byte

// machine is the code; it is copied, never called.
//
//lint:ignore U1000 the assembly takes its address
func machine()

// Code returns the bytes of the machine.
func Code() []byte {
	b := unsafe.Slice(machineStart, 512)
	n := bytes.Index(b, []byte("waldo:end"))
	if n < 0 {
		panic("machine: the machine has no end")
	}
	return bytes.Clone(b[:n])
}

// Boot is the list of steps that a machine starts with.
type Boot struct {
	Entry  uint64 // where it starts
	At     uint64 // where Steps go
	Steps  []byte
	Failed uint64 // the first word of a failure's record
	Room   uint64 // how much memory there is from DataBase on
}

// Data returns what is at DataBase when the machine starts.
func (b Boot) Data() []byte {
	data := make([]byte, b.At-DataBase)
	binary.LittleEndian.PutUint64(data, b.Entry)
	binary.LittleEndian.PutUint64(data[FailureAddr-DataBase:], b.Failed)
	return append(data, b.Steps...)
}

// Image returns an ELF executable: the machine, its header and the boot list.
func Image(boot Boot) []byte {
	const page = 1 << 16 // the largest page of the two architectures
	text := append(make([]byte, 0x1000), Code()...)
	data := boot.Data()

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
	put(uint16(2), elfMachine, uint32(1), uint64(CodeBase+0x1000), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(3), uint16(0), uint16(0), uint16(0))
	segment(1, 5, 0, CodeBase, uint64(len(text)), uint64(len(text))) // PT_LOAD, r-x
	segment(1, 6, page, DataBase, uint64(len(data)), boot.Room)      // PT_LOAD, rw-
	segment(0x6474e551, 6, 0, 0, 0, 0)                               // PT_GNU_STACK, rw-
	out := make([]byte, page+len(data))
	copy(out, text)
	copy(out, b.Bytes())
	copy(out[page:], data)
	return out
}

// File returns a sealed memfd that holds the image.
func File(boot Boot) (*os.File, error) {
	fd, err := unix.MemfdCreate("waldo-sandbox", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 every memfd may be executed
		fd, err = unix.MemfdCreate("waldo-sandbox", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("machine: memfd_create: %w; sysctl vm.memfd_noexec must be 0 or 1", err)
	}
	f := os.NewFile(uintptr(fd), "waldo-sandbox")
	if _, err := f.Write(Image(boot)); err != nil {
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
