//go:build linux && (amd64 || arm64)

package confined

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

// TestInContainer: behind Docker's filter there are no namespaces. The confined level works all the same; the
// namespace level is refused with a hint.
func TestInContainer(t *testing.T) {
	if os.Getenv("WALDO_TEST_CONTAINER") == "" {
		c := exec.Command("/proc/self/exe", "behind", "docker", "/proc/self/exe", "-test.run=^TestInContainer$", "-test.v")
		c.Env = append(os.Environ(), "WALDO_TEST_CONTAINER=1")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestInContainer") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
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
		t.Error("namespace has made a sandbox here")
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
