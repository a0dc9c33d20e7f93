//go:build linux

package attack

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
)

// TestMain also serves as "sandbox [flags] -- COMMAND" for the probes' runner: it runs the command in a sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		os.Exit(sandboxMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func driver() sandbox.Driver { return namespace.New(namespace.Options{MilliCPU: 1000}) }

// profile returns a strict sandbox profile: the one of waldo exec without flags.
func profile() sandbox.Profile {
	const disk, inodes = 256 << 20, 16 << 10
	return sandbox.Profile{
		Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{
			{Target: "/tmp", Bytes: disk, Inodes: inodes},
			{Target: "/workspace/tmp", Bytes: disk, Inodes: inodes},
			{Target: "/workspace/output", Bytes: disk, Inodes: inodes, Export: true},
		},
		Limits: sandbox.Limits{Wall: time.Minute, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
			Disk: disk, Inodes: inodes, Output: 200 << 10},
	}
}

// environment returns the whole environment of a command in the sandbox.
func environment() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp", "LANG=C.UTF-8", "TMPDIR=/tmp"}
}

func sandboxMain(args []string) int {
	p := profile()
	fs := flag.NewFlagSet("sandbox", flag.ExitOnError)
	wall := fs.Duration("timeout", 10*time.Second, "wall clock")
	memory := fs.Int64("memory-mb", p.Limits.Memory>>20, "memory")
	fs.Int64Var(&p.Limits.Pids, "pids", p.Limits.Pids, "processes")
	fs.Int64Var(&p.Limits.Files, "files", p.Limits.Files, "open files")
	output := fs.Int64("output-kb", p.Limits.Output>>10, "output kept of each stream")
	fs.Parse(args)
	p.Limits.Wall, p.Limits.Memory, p.Limits.Output = *wall, *memory<<20, *output<<10
	ctx := context.Background()
	p.ID = id.New(id.Sandbox)
	b, err := driver().Start(ctx, p)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	defer b.Close()
	f, err := b.Run(ctx, sandbox.Command{
		Argv: fs.Args(), Env: environment(), Dir: "/workspace/tmp", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	switch {
	case f.TimedOut:
		return 124
	case f.OOMKilled || f.Signal != nil:
		return 137
	case f.ExitCode != nil:
		return *f.ExitCode
	}
	return 1
}

// sandbox creates one sandbox for a profile.
func sb(t *testing.T, p sandbox.Profile) sandbox.Sandbox {
	t.Helper()
	p.ID = id.New(id.Sandbox)
	b, err := driver().Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// inside runs a Python program in a new sandbox.
func inside(t *testing.T, p sandbox.Profile, code string, args ...string) facts.Facts {
	t.Helper()
	f, err := sb(t, p).Run(context.Background(), python(code, args...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func python(code string, args ...string) sandbox.Command {
	return sandbox.Command{
		Argv: append([]string{"python3", "-c", preamble + code}, args...), Env: environment(), Dir: "/workspace/tmp",
	}
}

// outside runs the same program without a sandbox, as the control.
func outside(t *testing.T, code string, args ...string) string {
	t.Helper()
	cmd := control(append([]string{"-c", preamble + code}, args...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("control: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// control returns a command for the sandbox's interpreter, outside.
func control(args ...string) *exec.Cmd {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "python3")); err == nil {
			return exec.Command(filepath.Join(dir, "python3"), args...)
		}
	}
	return exec.Command("python3", args...)
}

// preamble defines how the programs report one action: "ok" and its result, or "refused" and the errno.
var preamble = fmt.Sprintf(`
import ctypes, errno, os, socket, subprocess, sys, time
L = ctypes.CDLL(None, use_errno=True)
L.syscall.restype = ctypes.c_long
def syscall(*a):
    r = L.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    if r < 0: raise OSError(ctypes.get_errno(), "syscall")
    return r
def attempt(f, *a):
    try: print("ok", f(*a))
    except OSError as e: print("refused", errno.errorcode.get(e.errno, e.errno))
NR = {"unshare": %d, "io_uring_setup": %d, "keyctl": %d, "socket": %d, "memfd_secret": %d, "personality": %d, "ptrace": %d, "shmget": %d}
`, unix.SYS_UNSHARE, unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL, unix.SYS_SOCKET, unix.SYS_MEMFD_SECRET, unix.SYS_PERSONALITY, unix.SYS_PTRACE, unix.SYS_SHMGET)
