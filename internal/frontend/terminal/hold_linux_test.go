package terminal

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/testing/terminaltest"
)

// TestHold: while waldo holds a terminal, an ordinary user's program cannot open it, and can afterwards. Hold says so
// where the kernel lets programs in. An exclusive terminal stays one.
func TestHold(t *testing.T) {
	if os.Getenv("WALDO_TEST_HOLD") != "" {
		held(t, os.NewFile(3, "tty"))
		return
	}
	_, program := terminaltest.Pair(t)
	c := exec.Command(os.Args[0], "-test.run=^TestHold$", "-test.v")
	c.Env = append(os.Environ(), "WALDO_TEST_HOLD=1")
	c.ExtraFiles = []*os.File{program}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, // no rights outside of it
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skip("no user namespaces here: ", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if os.Getuid() == 0 {
		release, err := Hold(program)
		if err == nil {
			t.Error("root's programs open a held terminal, and Hold does not say so")
		}
		release()
	}
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if _, err := Hold(none); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("no terminal: %v", err)
	}
}

func held(t *testing.T, tty *os.File) {
	t.Helper()
	opens := func() error {
		f, err := os.OpenFile("/proc/self/fd/3", os.O_WRONLY|unix.O_NOCTTY, 0)
		if err == nil {
			_ = f.Close()
		}
		return err
	}
	if err := opens(); err != nil {
		t.Fatalf("control: %v", err)
	}
	release, err := Hold(tty)
	if err != nil {
		t.Fatal(err)
	}
	if err := opens(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a held terminal: %v", err)
	}
	inner, err := Hold(tty)
	if err != nil {
		t.Error(err)
	}
	inner()
	if err := opens(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a terminal that was held before stays so: %v", err)
	}
	release()
	if err := opens(); err != nil {
		t.Errorf("after release: %v", err)
	}
}
