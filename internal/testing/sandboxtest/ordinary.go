//go:build linux

package sandboxtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A user that owns no file and has no group: one for each test binary, because the kernel counts processes by
// user.
var nobody = 40_000 + uint32(os.Getpid()%20_000)

// AsOrdinaryUser runs tests of this binary once more as a user without any power, where this is root,
// which is when that says something new. Each of the tests must be there and pass, or
// say why it cannot tell on this machine.
func AsOrdinaryUser(t *testing.T, tests ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("these tests already run as an ordinary user")
	}
	dir, err := os.MkdirTemp("/tmp", "waldo-nobody-") // which all users can enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary, home := filepath.Join(dir, "test"), filepath.Join(dir, "home")
	if err := errs(os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755), os.Mkdir(home, 0o700),
		os.Chown(home, int(nobody), int(nobody))); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "-test.run", "^("+strings.Join(tests, "|")+")$", "-test.v", "-test.count=1")
	c.Dir, c.Env = home, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	for _, name := range tests {
		ended := strings.Contains(string(out), "\n--- PASS: "+name+" (") ||
			strings.Contains(string(out), "\n--- SKIP: "+name+" (")
		if err == nil && !ended {
			err = errors.New(name + " is not there")
		}
	}
	if err == nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "--- PASS") && !strings.HasPrefix(line, "=== ") {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	t.Errorf("as an ordinary user: %v", err)
}
