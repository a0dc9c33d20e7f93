//go:build linux && (amd64 || arm64)

package confined

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/testing/sandboxtest"
)

// TestKernelLimits: every limit that the kernel applies to a process is set, and the command cannot raise it.
func TestKernelLimits(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.CPU = 7 * time.Second
	for _, r := range []struct {
		name     string
		resource int
		want     int64
	}{
		{"NOFILE", unix.RLIMIT_NOFILE, p.Limits.Files}, {"FSIZE", unix.RLIMIT_FSIZE, p.Limits.Disk},
		{"CORE", unix.RLIMIT_CORE, 0}, {"STACK", unix.RLIMIT_STACK, 8 << 20}, {"MEMLOCK", unix.RLIMIT_MEMLOCK, 64 << 10},
		{"MSGQUEUE", unix.RLIMIT_MSGQUEUE, 0}, {"SIGPENDING", unix.RLIMIT_SIGPENDING, 256}, {"CPU", unix.RLIMIT_CPU, 8},
		{"DATA", unix.RLIMIT_DATA, p.Limits.Memory},
	} {
		var own unix.Rlimit
		if err := unix.Getrlimit(r.resource, &own); err != nil || own.Max <= uint64(r.want) {
			t.Logf("control: %s of waldo itself is %d: a sandbox could have no more (%v)", r.name, own.Max, err)
		}
		code := fmt.Sprintf("import resource as r; print(*r.getrlimit(r.RLIMIT_%s))", r.name)
		f, err := start(t, p).Run(t.Context(), python(code))
		n := min(uint64(r.want), own.Max)
		if want := fmt.Sprintf("%d %d\n", n, n); err != nil || f.Stdout != want {
			t.Errorf("%s: %q, wanted %q: %v %s", r.name, f.Stdout, want, err, f.Stderr)
		}
	}
	count := "import resource as r; print(r.getrlimit(r.RLIMIT_NPROC)[1])"
	f, err := start(t, p).Run(t.Context(), python(count))
	var n int64
	var own unix.Rlimit
	if _, serr := fmt.Sscan(f.Stdout, &n); errors.Join(err, serr, unix.Getrlimit(unix.RLIMIT_NPROC, &own)) != nil ||
		n < p.Limits.Pids || uint64(n) >= own.Max {
		t.Errorf("NPROC: %q, and of waldo itself %d: %v", f.Stdout, own.Max, err)
	}
}

// TestGroups: a command reads no files that groups of root's own could read.
func TestGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may drop its groups")
	}
	if err := syscall.Setgroups([]int{0, 4242}); err != nil { // control: there is something to drop
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setgroups([]int{0}) }()
	f, err := start(t, sandboxtest.Profile()).Run(t.Context(), python("import os; print(os.getgroups())"))
	if err != nil || f.Stdout != "[]\n" {
		t.Errorf("%q %q %v", f.Stdout, f.Stderr, err)
	}
}

// TestEnvironment: nothing of waldo's own environment reaches a command.
func TestEnvironment(t *testing.T) {
	t.Setenv("WALDO_CANARY", "sesame")
	f, err := start(t, sandboxtest.Profile()).Run(t.Context(), python("import os; print(sorted(os.environ))"))
	if err != nil || strings.Contains(f.Stdout, "CANARY") || !strings.Contains(f.Stdout, "'PATH', 'TMPDIR'") {
		t.Errorf("%q %q %v", f.Stdout, f.Stderr, err)
	}
}
