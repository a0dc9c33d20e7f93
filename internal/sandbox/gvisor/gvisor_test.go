//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"waldo/internal/sandbox/sandboxtest"
)

// driver returns a driver, or ends the test where this build has no gVisor inside.
func driver(t *testing.T) *Driver {
	t.Helper()
	d := New(Options{State: t.TempDir()})
	if _, err := d.executable(); errors.Is(err, errNoPayload) {
		t.Skip("no gVisor inside: scripts/build-gvisor.sh makes it, as make test does")
	}
	return d
}

func TestSuite(t *testing.T) { sandboxtest.Run(t, driver(t)) }

// TestSuiteAsOrdinaryUser runs the suite again as a user with no capabilities, where it was
// started by root.
func TestSuiteAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("already an ordinary user")
	}
	driver(t)
	dir, err := os.MkdirTemp("", "waldo-gvisor-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o755), os.Chown(filepath.Join(dir, "tmp"), 65534, 65534)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(binary, "-test.run=^TestSuite$", "-test.v")
	c.Dir = "/"
	c.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + filepath.Join(dir, "tmp")}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
