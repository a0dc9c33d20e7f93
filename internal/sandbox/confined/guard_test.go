//go:build linux && (amd64 || arm64)

package confined

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/testing/sandboxtest"
)

// TestCommandsRefused: a command that this level or the kernel cannot take unchanged is an error of waldo's, and the
// sandbox runs the next command. A program is not looked for in the current folder.
func TestCommandsRefused(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	for _, r := range []struct {
		why, want string
		c         sandbox.Command
	}{
		{"no command", "no command to run", sandbox.Command{}},
		{"an empty command", "no command to run", sandbox.Command{Argv: []string{""}}},
		{"a NUL would cut the argument short", "no NUL", sandbox.Command{Argv: []string{"true", "a\x00b"}}},
		{"a relative folder", "not absolute", sandbox.Command{Argv: []string{"true"}, Dir: "tmp"}},
		{"a terminal", "no terminal", sandbox.Command{Argv: []string{"true"}, TTY: os.Stdin}},
	} {
		if _, err := b.Run(t.Context(), r.c); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v", r.why, err)
		}
	}
	for path, want := range map[string]int{"/usr/bin": 0, ".:/nowhere": 127, "": 127} {
		f, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"true"}, Env: []string{"PATH=" + path}, Dir: "/usr/bin"})
		if err != nil || f.ExitCode == nil || *f.ExitCode != want {
			t.Errorf("PATH=%s: %v %+v, want %d", path, err, f, want)
		}
	}
}

// running starts a command and returns its supervisor and itself. The sandbox ends with the test.
func running(t *testing.T, p sandbox.Profile) (supervisor, command int, done chan facts.Facts) {
	t.Helper()
	b, before := start(t, p), procstat.Children(os.Getpid())
	done = make(chan facts.Facts, 1)
	go func() {
		f, err := b.Run(t.Context(), python("import time; time.sleep(300)"))
		if err != nil {
			f.Stderr += err.Error()
		}
		done <- f
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, pid := range procstat.Children(os.Getpid()) {
			for _, below := range procstat.Children(pid) {
				if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", below)); strings.Contains(exe, "python") &&
					!strings.Contains(fmt.Sprint(before), fmt.Sprint(pid)) {
					return pid, below, done
				}
			}
		}
	}
	t.Fatal("control: the command does not start")
	return 0, 0, nil
}

// TestSupervisor: the process of waldo's own above a command has nothing of waldo's environment and a session of its
// own. A command dies with it.
func TestSupervisor(t *testing.T) {
	t.Setenv("WALDO_CANARY", "sesame")
	supervisor, command, done := running(t, sandboxtest.Profile())
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", supervisor))
	if err != nil || strings.Contains(string(env), "sesame") {
		t.Errorf("its environment is %q: %v", env, err)
	}
	if session, err := unix.Getsid(supervisor); err != nil || session != supervisor {
		t.Errorf("its session is %d, and its number %d: %v", session, supervisor, err)
	}
	if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); unix.Kill(command, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command)); strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(end) {
			_ = unix.Kill(command, unix.SIGKILL)
			t.Fatal("the command runs on")
		}
	}
	<-done
}

// TestClosedWhileItStarts: a sandbox that is closed while a command starts ends it, at any moment.
func TestClosedWhileItStarts(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.Wall = 20 * time.Second
	for i := range 24 {
		b, err := New(Options{}).Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		began := time.Now()
		go func() {
			time.Sleep(time.Duration(i) * 500 * time.Microsecond)
			closed <- b.Close()
		}()
		f, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sleep", "60"}})
		if cerr := <-closed; cerr != nil || err == nil && f.Limit != nil || time.Since(began) > 15*time.Second {
			t.Fatalf("closed after %d half milliseconds: %v %v, limit %v after %v", i, err, cerr, f.Limit, time.Since(began))
		}
	}
	b := start(t, p).(*instance)
	b.closing.Store(true)
	if f, err := b.Run(t.Context(), python("import time; time.sleep(60)")); err == nil && f.Limit != nil {
		t.Errorf("a sandbox that is being closed ran a command until its limit: %+v", f)
	}
}

// TestChain: chains of processes, each of which lives only to make the next, do not outrun their end.
func TestChain(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.Wall = time.Second
	began := time.Now()
	f, err := start(t, p).Run(t.Context(), python(`import os
for i in range(8):
    if os.fork() == 0: break
while True:
    if os.fork(): os._exit(0)`))
	if err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v %s after %v", err, f.Status, time.Since(began))
	}
}

// TestPidsAreCounted: where the kernel lets a user have more processes than a sandbox may, waldo counts those of the
// sandbox. The kernel counts by user, and the user has others when the command begins.
func TestPidsAreCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start something as the sandbox's user")
	}
	p := sandboxtest.Profile()
	p.Limits.Pids = 5
	b := start(t, p).(*instance)
	var others []*exec.Cmd
	for range 40 {
		c := exec.Command("/bin/sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.gid)}}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}
	up, says := io.Pipe()
	go func() { // once the command's limits are set
		_, _ = up.Read(make([]byte, 1))
		for _, c := range others {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		_, _ = io.Copy(io.Discard, up)
	}()
	c := python("import os, time\nprint('up', flush=True); time.sleep(3)\nfor i in range(20):\n if os.fork() == 0: " +
		"time.sleep(20); os._exit(0)\ntime.sleep(20)")
	c.Stdout = says
	f, err := b.Run(t.Context(), c)
	says.Close()
	if err != nil || f.Limit == nil || *f.Limit != facts.LimitPids {
		t.Errorf("%v, limit %v: %s", err, f.Limit, f.Stderr)
	}
}

// TestSweep: of the folders in a temporary folder, those go that a killed waldo left, and no others.
func TestSweep(t *testing.T) {
	temp, elsewhere := t.TempDir(), t.TempDir()
	long := time.Now().Add(-time.Hour)
	folder := func(name string, change func(at string) error) string {
		at := filepath.Join(temp, name)
		if err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "file"), nil, 0o600), change(at)); err != nil {
			t.Fatal(err)
		}
		return at
	}
	old := func(at string) error { return os.Chtimes(at, long, long) }
	b := &instance{}
	if err := errors.Join(b.makeDir(temp), os.WriteFile(filepath.Join(elsewhere, "file"), nil, 0o600),
		os.Symlink(elsewhere, filepath.Join(temp, locked+"link"))); err != nil {
		t.Fatal(err)
	}
	defer b.held.Close()
	rows := map[string]bool{ // whether it stays
		folder(locked+"left", old):                                  false,
		folder(unlocked+"left", old):                                false,
		folder(unlocked+"young", func(string) error { return nil }): true,
		folder("other-"+locked, old):                                true,
		b.dir:                                                       true,
		filepath.Join(elsewhere, "file"):                            true,
		filepath.Join(temp, locked+"link"):                          true,
	}
	if os.Geteuid() == 0 {
		rows[folder(locked+"another", func(at string) error { return os.Chown(at, 4242, 4242) })] = true
	}
	sweep(temp)
	for at, stays := range rows {
		if _, err := os.Lstat(at); (err == nil) != stays {
			t.Errorf("%s: %v, and it must stay: %t", filepath.Base(at), err, stays)
		}
	}
}

// TestTempDir: root makes sandboxes where their users can go.
func TestTempDir(t *testing.T) {
	for mode, same := range map[os.FileMode]bool{0o755: true, 0o700: os.Geteuid() != 0} {
		dir, err := os.MkdirTemp("/tmp", "waldo-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", dir)
		if got := tempDir(); (got == dir) != same {
			t.Errorf("$TMPDIR of mode %o: %s", mode, got)
		}
	}
}

// TestFolders: a sandbox's folder is closed to changes by other users, and names beside its places stay as they are.
func TestFolders(t *testing.T) {
	b := start(t, sandboxtest.Profile()).(*instance)
	if st, err := os.Stat(b.dir); err != nil || st.Mode().Perm() != 0o711 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	for name, want := range map[string]string{"/tmp/x": b.dir + "/tmp/x", "/tmp": b.dir + "/tmp", "/tmpx": "/tmpx"} {
		if got := b.here(name); got != want {
			t.Errorf("%s is %s, wanted %s", name, got, want)
		}
	}
}
