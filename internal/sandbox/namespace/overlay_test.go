//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/testing/sandboxtest"
)

// shell runs a shell in a sandbox and returns what it says.
func shell(t *testing.T, b sandbox.Sandbox, script string) (stdout string, warnings []string) {
	t.Helper()
	f, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", script},
		Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(f.Stdout + f.Stderr), f.Warnings
}

// TestOverlayRefused: if the kernel refuses an overlay of a folder, a profile's folder is copied, and one of the
// machine is shown directly, without inotify. The run warns about both.
func TestOverlayRefused(t *testing.T) {
	input := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(input, "file"), []byte("text"), 0o600),
		unix.Mkfifo(filepath.Join(input, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := sandboxtest.Profile()
	p.Mounts = []sandbox.Mount{{Source: input, Target: "/workspace/input"}}
	const look = `cd /workspace/input; ls; cat file; stat -f -c %T .; (: >new) 2>/dev/null || echo sealed
/usr/bin/python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); print("watch", l.inotify_init1(0) > 0 or ctypes.get_errno())'`
	d := New(Options{})
	start := func() sandbox.Sandbox {
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	if got, warned := shell(t, start(), look); got != "file\npipe\ntextoverlayfs\nsealed\nwatch True" ||
		len(warned) > 0 && strings.Contains(fmt.Sprint(warned), "overlay") {
		t.Fatalf("control: %q %q", got, warned)
	}
	for _, folder := range []string{input, "/usr"} {
		if !d.refused.learn(&initproc.StepError{Step: overlayOf + folder, Errno: unix.EINVAL}) {
			t.Fatal("a refusal is not remembered")
		}
	}
	refused := false
	for _, a := range d.Probe(t.Context()).Abilities {
		refused = refused || a.Name == "overlays" && !a.OK && strings.Contains(a.Hint, "inotify")
	}
	if !refused {
		t.Error("the probe does not say that there is no overlay")
	}
	got, warned := shell(t, start(), look)
	if got != "file\ntexttmpfs\nsealed\nwatch 1" {
		t.Errorf("without overlays: %q", got)
	}
	for _, want := range []string{"/workspace/input is a copy", "/usr is shown as it is"} {
		if !strings.Contains(fmt.Sprint(warned), want) {
			t.Errorf("no warning that %s: %q", want, warned)
		}
	}
}

// TestShownAsItIs: in a folder that is shown without an overlay, mounts below it are sealed too. The control writes
// to such a mount from outside, where its mode lets all users write.
func TestShownAsItIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount something in a folder")
	}
	below, err := os.MkdirTemp("/usr/lib", "waldo-test-")
	if err != nil {
		t.Skip("nothing can be mounted below /usr: ", err)
	}
	defer os.Remove(below)
	if err := unix.Mount("waldo", below, "tmpfs", 0, "size=1m,mode=777"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(below, unix.MNT_DETACH)
	if err := errors.Join(os.WriteFile(filepath.Join(below, "outside"), nil, 0o666), os.Chmod(below, 0o777)); err != nil {
		t.Fatal("control:", err)
	}
	d := New(Options{})
	if !d.refused.learn(&initproc.StepError{Step: overlayOf + "/usr", Errno: unix.EINVAL}) {
		t.Fatal("a refusal is not remembered")
	}
	b, err := d.Start(t.Context(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, _ := shell(t, b, "cd "+below+" && ls && (: >inside) 2>&1 | grep -o 'Read-only.*'")
	if want := "outside\nRead-only file system"; got != want {
		t.Errorf("below what is shown as it is: %q, wanted %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(below, "inside")); err == nil {
		t.Error("the sandbox has written there")
	}
	const attributes = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV
	var outside unix.Statfs_t
	if err := unix.Statfs(below, &outside); err != nil || outside.Flags&attributes != 0 {
		t.Fatalf("control: attributes %x, %v", outside.Flags&attributes, err)
	}
	got, _ = shell(t, b, fmt.Sprintf(
		`python3 -c 'import os; print([os.statvfs(d).f_flag & %d for d in ("/usr", "%s")])'`, attributes, below))
	if want := fmt.Sprintf("[%d, %[1]d]", attributes); got != want {
		t.Errorf("what is shown as it is has the attributes %s, wanted %s", got, want)
	}
}

// TestLearn: the kernel's refusal of an overlay is remembered, once. Lack of memory and the failure of another step
// are not.
func TestLearn(t *testing.T) {
	var r refusals
	for _, row := range []struct {
		err  error
		want bool
	}{
		{&initproc.StepError{Step: "show /usr", Errno: unix.EINVAL}, false},
		{&initproc.StepError{Step: overlayOf + "/usr", Errno: unix.ENOMEM}, false},
		{errors.New("overlay of /usr"), false},
		{fmt.Errorf("wrapped: %w", &initproc.StepError{Step: overlayOf + "/usr", Errno: unix.EINVAL}), true},
		{&initproc.StepError{Step: overlayOf + "/usr", Errno: unix.EINVAL}, false},
	} {
		if got := r.learn(row.err); got != row.want {
			t.Errorf("%v: %v", row.err, got)
		}
	}
	if errno, ok := r.of("/usr"); !ok || errno != unix.EINVAL {
		t.Errorf("%v %v", errno, ok)
	}
}

// TestFoldersStayFresh: a running command sees changes in a folder within a second or two, although an overlay caches
// names.
func TestFoldersStayFresh(t *testing.T) {
	input := t.TempDir()
	name := filepath.Join(input, "file")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := sandboxtest.Profile()
	p.Mounts = []sandbox.Mount{{Source: input, Target: "/workspace/input"}}
	b, err := New(Options{}).Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	replace := time.AfterFunc(300*time.Millisecond, func() {
		_ = os.WriteFile(name+".new", []byte("new"), 0o644)
		_ = os.Rename(name+".new", name)
	})
	defer replace.Stop()
	got, _ := shell(t, b,
		`cd /workspace/input; cat file missing 2>/dev/null; for i in $(seq 300); do grep -q new file && echo changed && `+
			`break; sleep 0.1; done`)
	if got != "oldchanged" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(filepath.Join(input, "missing"), []byte("there"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _ := shell(t, b, "cat /workspace/input/missing"); got != "there" {
		t.Errorf("the next command sees %q", got)
	}
}

// TestMountsBelow: mounts in a shown folder are shown if root can copy them, and are an error otherwise.
func TestMountsBelow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount something in a folder")
	}
	input := t.TempDir()
	at := filepath.Join(input, "other disk")
	if err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "covered"), nil, 0o644),
		unix.Mount("waldo", at, "tmpfs", 0, "size=1m,mode=755"),
		os.WriteFile(filepath.Join(at, "inner"), []byte("inner"), 0o644)); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	p := sandboxtest.Profile()
	p.Mounts = []sandbox.Mount{{Source: input, Target: "/workspace/input"}}
	b, err := New(Options{}).Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got, _ := shell(t, b,
		`cd "/workspace/input/other disk" && ls && (: >x) 2>&1 | grep -o "Read-only.*"; stat -f -c %T .`); got !=
		"inner\noverlayfs" && got != "inner\nRead-only file system\noverlayfs" {
		t.Errorf("%q", got)
	}
}
