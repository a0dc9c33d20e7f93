//go:build linux

package seccompnotify

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/seccomp"
)

// TestAnother: if the caller has died, the process that now has its number is not reported.
func TestAnother(t *testing.T) {
	addr := []byte{2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	nr, ok := seccomp.Host().Number(callOfConnect)
	if !ok {
		t.Fatal("connect has no number")
	}
	ask := notification{pid: uint32(os.Getpid()), nr: int32(nr)}
	ask.args[1], ask.args[2] = uint64(uintptr(unsafe.Pointer(&addr[0]))), uint64(len(addr))
	if to, ok := destination(ask); !ok || to != "192.0.2.1:80" {
		t.Fatalf("control: %q %v", to, ok)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0) // no answer is waited for on it
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	n := &Listener{fd: null}
	n.answer(n.control, ask)
	if d, more := n.Take(); len(d) > 0 || more > 0 {
		t.Errorf("told of %v", d)
	}
}

// FuzzSockaddr: an address that is parsed is the one in the bytes, or parsing fails.
func FuzzSockaddr(f *testing.F) {
	f.Add([]byte{2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{10, 0, 1, 187, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{1, 0, '/', 't', 'm', 'p', 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := parseSockaddr(b)
		if !ok {
			return
		}
		if a.Port() != uint16(b[2])<<8|uint16(b[3]) || !bytes.Contains(b, a.Addr().AsSlice()) {
			t.Errorf("% x is not %v", b, a)
		}
	})
}
