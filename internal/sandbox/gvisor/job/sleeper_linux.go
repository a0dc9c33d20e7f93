//go:build amd64 || arm64

package job

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sleeper returns a program, in memory, that does nothing: it leaves the reaping of orphans to
// the kernel (by ignoring SIGCHLD) and sleeps. It is the first process of every guest, because a
// command that is process 1 could not be ended by a signal; and it keeps a namespace alive.
func Sleeper() (*os.File, error) {
	fd, err := unix.MemfdCreate("sleeper", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making the sleeper: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sleeper")
	defer f.Close()
	if _, err := f.Write(elf(sleeperCode)); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o555); err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) // gVisor wants one that cannot be written
}

// elf wraps code in the least executable there is (elf(5)): a header and one segment.
func elf(code []byte) []byte {
	const base, head = 0x400000, 64 + 56
	le := binary.LittleEndian
	b := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	for _, n := range []uint64{base + head, 64, 0} { // entry, program headers, section headers
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{64, 56, 1, 0, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // read, execute
	size := uint64(head + len(code))
	for _, n := range []uint64{0, base, base, size, size, 0x10000} {
		b = le.AppendUint64(b, n)
	}
	return append(b, code...)
}
