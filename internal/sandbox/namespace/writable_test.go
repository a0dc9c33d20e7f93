//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/testing/sandboxtest"
)

// TestWritableMount: files written to a writable folder stay there, with its owner's uid. Its sealed paths and the
// folders above them cannot be written, renamed or removed. No file in it can be watched. The control is the same
// folder, read-only.
func TestWritableMount(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".git/hooks", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"waldo.yaml", ".git/config", ".git/index", "src/a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const script = `cd /project
try() { if ("$@") >/dev/null 2>&1; then echo "done: $*"; else echo "denied: $*"; fi; }
put() { echo new >"$1"; }
try put src/a; try put src/b; try put .git/index; try put waldo.yaml; try put .git/config; try put .git/hooks/pre-commit
try mv waldo.yaml x; try rm -f .git/config; try mv .git y; try mv .git/hooks z; try rmdir .git/hooks
try chmod 4755 src/a; try chmod 2755 src/a; try chmod 755 src/a
/usr/bin/python3 -c 'import os
for how in (lambda: os.open("/project/new", os.O_CREAT|os.O_WRONLY, 0o4755), lambda: os.mknod("/project/node", 0o104755), lambda: os.fchmod(os.open("/project/src/a", os.O_RDWR), 0o6755)):
  try: how(); print("set-id done")
  except OSError as e: print("set-id", e.errno)'
/usr/bin/python3 -c 'import ctypes, os; print("watch", ctypes.CDLL(None).inotify_init1(0) >= 0, "flags", os.statvfs("/project").f_flag & 7)'`
	d := New(Options{})
	run := func(m sandbox.Mount) string {
		p := sandboxtest.Profile()
		p.Mounts = []sandbox.Mount{m}
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		got, _ := shell(t, b, script)
		return got
	}
	if got := run(sandbox.Mount{Source: dir, Target: "/project"}); !strings.Contains(got, "denied: put src/a") {
		t.Fatalf("control: %s", got)
	}
	open := run(sandbox.Mount{Source: dir, Target: "/project", Writable: true})
	if !strings.Contains(open, "done: put waldo.yaml") || !strings.Contains(open, "done: put .git/hooks/pre-commit") ||
		!strings.Contains(open, "done: mv .git y") {
		t.Fatalf("control, nothing sealed: %s", open)
	}
	if err := os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"x", "z"} {
		_ = os.RemoveAll(filepath.Join(dir, f))
	}
	for _, name := range []string{"waldo.yaml", ".git/config", ".git/hooks/pre-commit"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(dir, ".git", "index"), os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	sealed := run(sandbox.Mount{Source: dir, Target: "/project", Writable: true,
		Sealed: []string{"waldo.yaml", ".git/hooks", ".git/config"}})
	for line := range strings.SplitSeq("done: put src/a,done: put src/b,done: put .git/index,denied: "+
		"put waldo.yaml,denied: put .git/config,denied: put .git/hooks/pre-commit,denied: mv waldo.yaml x,denied: "+
		"rm -f .git/config,denied: mv .git y,denied: mv .git/hooks z,denied: rmdir .git/hooks,denied: "+
		"chmod 4755 src/a,denied: chmod 2755 src/a,done: chmod 755 src/a,set-id 1,watch False flags 6", ",") {
		if !strings.Contains(sealed, line) {
			t.Errorf("wanted %q in:\n%s", line, sealed)
		}
	}
	if strings.Contains(sealed, "set-id done") {
		t.Errorf("set-id files are made:\n%s", sealed)
	}
	for name, want := range map[string]string{"src/a": "new\n", "src/b": "new\n", "waldo.yaml": "old\n",
		".git/config": "old\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; wanted %q", name, got, err, want)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "src/b")); err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
		t.Errorf("src/b: %v %v", st, err)
	}
}

// TestLaterMounts: a sandbox does not see a later mount of this machine in a folder that it is shown. The control sees
// it through a bind mount. The test has mounts of its own, shared as on most machines.
func TestLaterMounts(t *testing.T) {
	const key = "WALDO_TEST_LATER_MOUNTS"
	if os.Geteuid() != 0 {
		t.Skip("only root can mount something in a folder")
	}
	if os.Getenv(key) == "" {
		c := exec.Command("/proc/self/exe", "-test.run", "^TestLaterMounts$")
		c.Env, c.SysProcAttr = append(os.Environ(), key+"=1"), &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil { // of the machine's
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	own, beside := t.TempDir(), t.TempDir()
	for _, r := range []struct {
		why, dir, at string
		mounts       []sandbox.Mount
	}{
		{"an overlay", own, "/shown", []sandbox.Mount{{Source: own, Target: "/shown"}}},
		{"a writable folder", own, "/shown", []sandbox.Mount{{Source: own, Target: "/shown", Writable: true}}},
		{"a folder of the machine as it is", "/usr/lib", "/usr/lib", nil},
	} {
		later, err := os.MkdirTemp(r.dir, "waldo-later-")
		if err := errors.Join(err, os.Chmod(later, 0o755)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(later)
		d, p := New(Options{}), sandboxtest.Profile()
		p.Mounts = r.mounts
		if r.mounts == nil && !d.refused.learn(&initproc.StepError{Step: overlayOf + "/usr", Errno: unix.EINVAL}) {
			t.Fatal("a refusal is not remembered")
		}
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(r.why, err)
		}
		defer b.Close()
		if err := errors.Join(unix.Mount(r.dir, beside, "", unix.MS_BIND, ""),
			unix.Mount("waldo", later, "tmpfs", 0, "size=1m,mode=755"),
			os.WriteFile(filepath.Join(later, "file"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(later)
		if _, err := os.Stat(filepath.Join(beside, name, "file")); err != nil {
			t.Fatal("control: ", err)
		}
		if got, _ := shell(t, b, "cd "+filepath.Join(r.at, name)+" && ls -A && echo end"); got != "end" {
			t.Errorf("%s: a sandbox sees %q", r.why, got)
		}
		if err := errors.Join(unix.Unmount(later, unix.MNT_DETACH), unix.Unmount(beside, unix.MNT_DETACH)); err != nil {
			t.Fatal(err)
		}
	}
}
