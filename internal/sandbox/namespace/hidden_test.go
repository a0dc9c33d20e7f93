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

// TestHidden: hidden files and folders of a shown folder are empty, also after a process outside has replaced one. What
// is beside them is shown. Without the list all of it is.
func TestHidden(t *testing.T) {
	input := t.TempDir()
	write := func(name, text string) {
		at := filepath.Join(input, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("sub/.env", "KEY")
	write(".ssh/id", "KEY")
	write("sub/plain", "plain")
	if err := os.Symlink("sub/.env", filepath.Join(input, "link")); err != nil {
		t.Fatal(err)
	}
	p := sandboxtest.Profile()
	p.Mounts = []sandbox.Mount{{Source: input, Target: "/workspace/input"}}
	const look = `cd /workspace/input; cat sub/.env link .ssh/* 2>/dev/null; cat sub/plain; (: >.ssh/new) 2>/dev/null || echo " sealed"
(umount sub/.env; rm sub/.env) >/dev/null 2>&1; cat sub/.env; cp -r . /tmp/copy && cat /tmp/copy/sub/.env`
	d := New(Options{})
	start := func() sandbox.Sandbox {
		t.Helper()
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	if got, _ := shell(t, start(), look); got != "KEYKEYKEYplain sealed\nKEYKEY" {
		t.Fatalf("control: %q", got)
	}
	p.Mounts[0].Hidden = []string{".ssh/", "sub/.env"}
	b := start()
	if got, _ := shell(t, b, look); got != "plain sealed" {
		t.Errorf("hidden: %q", got)
	}
	write("sub/new", "KEY")
	if err := os.Rename(filepath.Join(input, "sub/new"), filepath.Join(input, "sub/.env")); err != nil {
		t.Fatal(err)
	}
	write(".ssh/other", "KEY")
	if got, _ := shell(t, b, look); got != "plain sealed" {
		t.Errorf("after it was replaced outside: %q", got)
	}
	// Without an overlay the folder is copied, or a rename outside takes the cover away: such a folder is refused.
	d.refused.learn(&initproc.StepError{Step: overlayOf + input, Errno: unix.EINVAL})
	if b, err := d.Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no overlay of") {
		t.Errorf("without an overlay: %v %v", b, err)
	}
}

// TestHostCredentials: a registry password in this machine's /usr shows as an empty file. The file beside it is shown.
func TestHostCredentials(t *testing.T) {
	if os.Getenv("WALDO_TEST_OTHER_USR") != "" {
		b, err := New(Options{}).Start(t.Context(), sandboxtest.Profile())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if got, _ := shell(t, b, "cat /usr/etc/npmrc && cat /usr/etc/other"); got != "plain" {
			t.Errorf("inside: %q", got)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root mounts another /usr")
	}
	const script = `set -e; mount -t tmpfs none "$1"; mkdir "$1/up" "$1/work"
mount -t overlay none -o "lowerdir=/usr,upperdir=$1/up,workdir=$1/work" /usr
mkdir -p /usr/etc; printf TOKEN >/usr/etc/npmrc; printf plain >/usr/etc/other; grep -q TOKEN /usr/etc/npmrc
exec "$2" -test.run '^TestHostCredentials$'`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script, "sh", t.TempDir(), self)
	cmd.Env = append(os.Environ(), "WALDO_TEST_OTHER_USR=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
