package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/confined"
	"waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/namespace"
)

func TestMain(m *testing.M) {
	Main()
	confined.Main()
	os.Exit(m.Run())
}

// state is a state directory that the tests of this machine share, for its compiled code.
func state(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "waldo-engine-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drivers are the ways in which the process of a program can be held.
func drivers(t *testing.T) map[string]*Driver {
	return map[string]*Driver{
		"namespace": New(Options{State: state(t), Within: []sandbox.Driver{namespace.New(namespace.Options{MilliCPU: 1000})}}),
		"confined":  New(Options{State: state(t), Within: []sandbox.Driver{confined.New(confined.Options{MilliCPU: 1000})}}),
		"plain":     New(Options{State: state(t)}),
	}
}

// profile is one of a program with all folders.
func profile() sandbox.Profile {
	p := trial()
	p.Limits.Disk, p.Limits.Output = 1<<20, 64<<10
	p.Tmpfs = nil
	for _, at := range []string{"/workspace/input", "/workspace/output", "/workspace/tmp"} {
		p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: at, Bytes: 1 << 20, Inodes: 100, Export: at == "/workspace/output"})
	}
	return p
}

// run runs code in a fresh sandbox.
func run(t *testing.T, d *Driver, p sandbox.Profile, code string) facts.Facts {
	t.Helper()
	b, err := d.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	job, err := program.Job{Lang: guest.JavaScript, Code: []byte(code)}.Text()
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Run(t.Context(), sandbox.Command{Argv: Argv, Stdin: guest.Stdin(program.Prelude, job, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestProbe(t *testing.T) {
	for name, d := range drivers(t) {
		began := time.Now()
		r := d.Probe(context.Background())
		t.Log(name, time.Since(began))
		if !r.OK {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestFirstRun(t *testing.T) {
	for name, d := range drivers(t) {
		f := run(t, d, profile(), "console.log(1 + 1, process.env); workspace.write('a.txt', 'x')")
		t.Logf("%s: %+v", name, f)
	}
}
