//go:build linux && (amd64 || arm64)

package confined

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/sandboxtest"
)

// inContainer puts this process behind what Docker's default seccomp profile refuses of interest
// here: unshare and setns, clone with new namespaces, clone3, mount.
func inContainer() error {
	type insn struct {
		op     uint16
		jt, jf uint8
		k      uint32
	}
	clone, clone3 := uint32(unix.SYS_CLONE), uint32(unix.SYS_CLONE3)
	prog := []insn{
		{0x20, 0, 0, 0}, // the number
		{0x15, 6, 0, clone3},
		{0x15, 6, 0, unix.SYS_UNSHARE},
		{0x15, 5, 0, unix.SYS_SETNS},
		{0x15, 4, 0, unix.SYS_MOUNT},
		{0x15, 0, 4, clone},
		{0x20, 0, 0, 16}, // the flags
		{0x45, 1, 2, 0x7e020000},
		{0x06, 0, 0, 0x50000 | uint32(unix.ENOSYS)},
		{0x06, 0, 0, 0x50000 | uint32(unix.EPERM)},
		{0x06, 0, 0, 0x7fff0000},
	}
	var b []byte
	for _, i := range prog {
		b = binary.NativeEndian.AppendUint16(b, i.op)
		b = append(b, i.jt, i.jf)
		b = binary.NativeEndian.AppendUint32(b, i.k)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&b[0]))}
	const allThreads = 1
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, allThreads, uintptr(unsafe.Pointer(&f))); e != 0 {
		return e
	}
	return nil
}

// TestInContainer: behind Docker's filter there are no namespaces; confined works all the same, and
// namespace is refused with what to do about it.
func TestInContainer(t *testing.T) {
	if os.Getenv("WALDO_TEST_CONTAINER") == "" {
		c := exec.Command("/proc/self/exe", "-test.run=^TestInContainer$", "-test.v")
		c.Env = append(os.Environ(), "WALDO_TEST_CONTAINER=1")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestInContainer") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := inContainer(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWUSER); err != unix.EPERM {
		t.Fatalf("the container is none (control): unshare: %v", err)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != syscall.ENOSYS {
		t.Fatalf("the container is none (control): clone3: %v", e)
	}
	if r := New(Options{MilliCPU: 1000}).Probe(context.Background()); !r.OK {
		t.Errorf("%+v", r)
	}
	f, err := start(t, sandboxtest.Profile()).Run(context.Background(), python("print(1)"))
	if err != nil || f.Status != facts.OK || f.Stdout != "1\n" {
		t.Errorf("%s %q %q %v", f.Status, f.Stdout, f.Stderr, err)
	}
	strong := namespace.New(namespace.Options{MilliCPU: 1000})
	if b, err := strong.Start(context.Background(), sandboxtest.Profile()); err == nil {
		_ = b.Close()
		t.Error("namespace has made a box here")
	}
	advised(t, strong.Probe(context.Background()), "seccomp=unconfined")
}

// advised wants a report that refuses and says what to do.
func advised(t *testing.T, r sandbox.Report, hint string) {
	t.Helper()
	if r.OK || !strings.Contains(fmt.Sprint(r), hint) {
		t.Errorf("want a refusal with %q: %+v", hint, r)
	}
}
