//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/sandboxtest"
)

// TestConformance holds the driver to the suite of every driver.
func TestConformance(t *testing.T) {
	sandboxtest.Run(t, namespace.New(namespace.Options{MilliCPU: 1000}))
}

// TestOrdinaryUser runs the suite again as a user who is nobody: without root's powers, and as a
// rule without cgroups.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: TestConformance has run as an ordinary user already")
		return
	}
	asNobody(t, "^Test(Conformance|DiesWithWaldo|Mounts|Namespaces|Fine|Denials|Landlock|CommandsRefused|Way)$")
}

// asNobody runs tests of this binary as an ordinary user.
func asNobody(t *testing.T, tests string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "waldo-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := copyBinary(filepath.Join(dir, "test")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65533
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(dir, "test"), "-test.run", tests, "-test.v", "-test.count=1")
	c.Dir, c.Env = home, []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("as an ordinary user: %v\n%s", err, failures(string(out)))
	}
}

// failures leaves out what passed.
func failures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "--- PASS") && !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func copyBinary(to string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, self); err != nil {
		return fmt.Errorf("copying the test: %w", err)
	}
	return f.Close()
}
