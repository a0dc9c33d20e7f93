//go:build linux

package sandboxtest

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/sandbox"
)

// A driver without a mount namespace gives the folders other names, and these variables with them.
var env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "OUT=/workspace/output"}

// Report says how long runs took in sandboxes that waited, in ms, and how long the bare interpreter did beside
// them.
func Report(b *testing.B, bare, warm []float64) {
	slices.Sort(bare)
	slices.Sort(warm)
	b.ReportMetric(bare[b.N/2], "bare-p50-ms")
	b.ReportMetric(warm[b.N/2], "warm-p50-ms")
	b.ReportMetric(warm[b.N*99/100], "warm-p99-ms")
	b.ReportMetric(bare[b.N/2]/warm[b.N/2], "x-faster")
	b.ReportMetric(0, "ns/op")
}

// Profile returns a profile with modest limits, a /tmp and an exported /workspace/output.
func Profile() sandbox.Profile {
	return sandbox.Profile{
		ID:       "s_test",
		Template: sandbox.Template{Name: "host"},
		Tmpfs: []sandbox.Tmpfs{
			{Target: "/tmp", Bytes: 16 << 20, Inodes: 1000},
			{Target: "/workspace/output", Bytes: 16 << 20, Inodes: 1000, Export: true},
		},
		Limits: sandbox.Limits{Wall: time.Minute, CPU: 60 * time.Second, Memory: 512 << 20, Pids: 64,
			Files: 256, Disk: 16 << 20, Inodes: 1000, Output: 200 << 10},
	}
}

type suite struct {
	driver  sandbox.Driver
	ability map[string]bool
	has     map[string]bool // interpreters
	less    bool            // the driver does not promise everything
	asked   map[string]bool // classes of promises that something here has asked about
}

// Run tests a driver against the requirements for every driver.
func Run(t *testing.T, d sandbox.Driver) {
	s := &suite{driver: d, ability: map[string]bool{}, has: map[string]bool{}, asked: map[string]bool{}}
	promiser, less := d.(sandbox.Promiser)
	s.less = less
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
		t.Fatal("the suite looks at sandboxes from inside with /usr/bin/python3, which is not here")
	}
	t.Run("refused profiles", s.testRefused)
	t.Run("isolation", s.testIsolation)
	t.Run("narrow", s.testNarrow)
	t.Run("connections", s.testConnections)
	t.Run("streams", s.testStreams)
	t.Run("limits", s.testLimits)
	t.Run("clock", s.clock)
	t.Run("files", s.testFiles)
	t.Run("ends", s.testEnds)
	t.Run("nothing left", s.testNothingLeft)
	t.Run("tenants", s.testTenants)
	t.Run("bombs", s.testBombs)
	t.Run("facts", s.testFacts)
	if less && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") { // all was asked
		p := Profile()
		p.Template = sandbox.Template{Name: "dir:/srv/x", Dir: "/srv/x"}
		if b, err := d.Start(context.Background(), p); s.answer("templates", "", "no") == "no" && err == nil {
			t.Errorf("another root than the host's: %v", b.Close())
		}
		s.testPromises(t, promiser.Promises())
	}
}

// answer returns the exact output that is wanted for a class of promises: less, if the driver does not promise
// everything and less is not empty.
func (s *suite) answer(class, full, less string) string {
	s.asked[class] = true
	if s.less && less != "" {
		return less
	}
	return full
}

// testPromises: a driver promises nothing that this suite does not ask for, and leaves out nothing
// that it does.
func (s *suite) testPromises(t *testing.T, promises []sandbox.Promise) {
	for _, p := range promises {
		if !s.asked[p.Class] {
			t.Errorf("nothing here asks about %q, held: %v", p.Class, p.Held)
		}
		if p.Why == "" {
			t.Errorf("%s: no reason", p.Class)
		}
		delete(s.asked, p.Class)
	}
	for class := range s.asked {
		t.Errorf("%s says nothing about %q", s.driver.Name(), class)
	}
}

func (s *suite) start(t *testing.T, p sandbox.Profile) sandbox.Sandbox {
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

// python returns a command that runs the code after the usual imports. attempt(f) prints the result of f, or
// the name of its errno.
func python(code string) sandbox.Command {
	const prelude = `import os, sys, errno, socket, time, signal, ctypes, resource
def attempt(f):
    try: print("ok", f())
    except OSError as e: print("refused", errno.errorcode.get(e.errno, e.errno))
def opened(least):
    out = []
    for f in range(least, 1000):
        try: os.fstat(f); out.append(f)
        except OSError: pass
    return out
TMP, OUT = os.environ["HOME"], os.environ["OUT"]
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *a):
    r = libc.syscall(nr, *a)
    if r < 0: raise OSError(ctypes.get_errno(), "")
    return r
`
	return sandbox.Command{Argv: []string{"python3", "-I", "-S", "-c", prelude + code}, Env: env}
}
