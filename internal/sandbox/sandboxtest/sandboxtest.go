//go:build linux

package sandboxtest

import (
	"context"
	"os"
	"testing"
	"time"

	"waldo/internal/sandbox"
)

var env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}

// Profile returns a profile with modest limits, a /tmp and an exported /workspace/output.
func Profile() sandbox.Profile {
	return sandbox.Profile{
		ID:       "s_test",
		Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{
			{Target: "/tmp", Bytes: 16 << 20, Inodes: 1000},
			{Target: "/workspace/output", Bytes: 16 << 20, Inodes: 1000, Export: true},
		},
		Limits: sandbox.Limits{Wall: 20 * time.Second, CPU: 60 * time.Second, Memory: 512 << 20, Pids: 64,
			Files: 256, Disk: 16 << 20, Inodes: 1000, Output: 200 << 10},
	}
}

type suite struct {
	driver  sandbox.Driver
	ability map[string]bool
	has     map[string]bool // interpreters
}

// Run holds a driver to what every driver must do.
func Run(t *testing.T, d sandbox.Driver) {
	s := &suite{driver: d, ability: map[string]bool{}, has: map[string]bool{}}
	report := d.Probe(context.Background())
	for _, a := range report.Abilities {
		s.ability[a.Name] = a.OK
		if !a.OK {
			t.Logf("%s: %s (%s)", a.Name, a.What, a.Hint)
		}
	}
	if !report.OK {
		t.Fatalf("%s says that it cannot run here", d.Name())
	}
	for _, i := range []string{"python3", "node", "sh"} {
		_, err := os.Stat("/usr/bin/" + i)
		s.has[i] = err == nil
	}
	if !s.has["python3"] {
		t.Fatal("the suite looks at boxes from inside with /usr/bin/python3, which is not here")
	}
	t.Run("refused profiles", s.testRefused)
	t.Run("isolation", s.testIsolation)
	t.Run("streams", s.testStreams)
	t.Run("limits", s.testLimits)
	t.Run("files", s.testFiles)
	t.Run("ends", s.testEnds)
	t.Run("nothing left", s.testNothingLeft)
	t.Run("facts", s.testFacts)
}

func (s *suite) start(t *testing.T, p sandbox.Profile) sandbox.Box {
	t.Helper()
	b, err := s.driver.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// python is a command that runs the code with what it is likely to need imported; attempt(f)
// prints what f returns, or the name of its errno.
func python(code string) sandbox.Command {
	const prelude = `import os, sys, errno, socket, time, signal, ctypes, resource
def attempt(f):
    try: print("ok", f())
    except OSError as e: print("refused", errno.errorcode.get(e.errno, e.errno))
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *a):
    r = libc.syscall(nr, *a)
    if r < 0: raise OSError(ctypes.get_errno(), "")
    return r
`
	return sandbox.Command{Argv: []string{"python3", "-I", "-S", "-c", prelude + code}, Env: env}
}
