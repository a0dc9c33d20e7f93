package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine/cpython"
	"waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/guest"
)

// pythonProfile is profile for a program in Python.
func pythonProfile(change func(*sandbox.Profile)) sandbox.Profile {
	p := profile()
	p.Limits.Memory = 128 << 20
	p.Prestart = &sandbox.Prestart{Argv: PythonArgv, Env: []string{}, Prelude: program.Prelude}
	if change != nil {
		change(&p)
	}
	return p
}

func needsPython(t *testing.T) {
	t.Helper()
	if !cpython.Available() {
		t.Skip("this program was built without Python for engine: scripts/cpython.sh fetches it, with npm")
	}
}

// runPython runs a program in a fresh sandbox.
func runPython(t *testing.T, d *Driver, p sandbox.Profile, code string) facts.Facts {
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
	job, err := program.Job{Lang: guest.Python, Code: []byte(code), Env: map[string]string{"FOO": "bar"}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Run(t.Context(), sandbox.Command{Argv: PythonArgv, Stdin: guest.Stdin(program.Prelude, job, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// outside are what a program in Python tries, one line of output each. None may succeed.
const outside = `
import os
for what in ("open('/etc/passwd')", "open('/workspace/../etc/passwd')", "open('../../etc/passwd')", "os.listdir('/')",
             "open('/proc/self/environ')", "os.fork()", "os.system('id')", "__import__('subprocess').run(['id'])",
             "__import__('socket').create_connection(('127.0.0.1', 80))", "__import__('ctypes')", "os.kill(1, 9)",
             "os.symlink('/etc', '/workspace/output/l')", "os.link('/workspace/output/l', '/workspace/output/m')",
             "os.open('/workspace/output', os.O_RDWR)", "open('/workspace/x', 'w')", "os.mkfifo('/workspace/tmp/f')",
             "os.rename('/workspace/output', '/workspace/tmp/o')"):
    try:
        print(what, eval(what))
    except (OSError, AttributeError, ImportError) as e:
        pass
open('/workspace/output/control', 'w').write('x')
print(open('/workspace/output/control').read(), os.environ['FOO'], os.getcwd())
`

// TestPython: programs in Python end as they should, and hostile ones with the refusal that is theirs, however their
// process is held.
func TestPython(t *testing.T) {
	needsPython(t)
	all := drivers(t)
	limits := func(change func(*sandbox.Limits)) sandbox.Profile {
		return pythonProfile(func(p *sandbox.Profile) { change(&p.Limits) })
	}
	wall := limits(func(l *sandbox.Limits) { l.Wall = 3 * time.Second })
	memory := limits(func(l *sandbox.Limits) { l.Memory = 64 << 20 })
	for _, r := range []struct {
		why, code string
		p         sandbox.Profile
		status    facts.Status
		limit     facts.Limit
		out       string // of standard output
		errors    string // part of standard error
	}{
		{"nothing outside of the workspace", outside, pythonProfile(nil), facts.OK, "", "x bar /workspace\n", ""},
		{"await, timers and the library (control)",
			"import asyncio, csv, json, re, time\n" +
				"async def f(n):\n    await asyncio.sleep(n / 100)\n    return n\n" +
				"print(await asyncio.gather(f(2), f(1)), await asyncio.to_thread(lambda: 7)); time.sleep(0.01)",
			pythonProfile(nil), facts.OK, "", "[2, 1] 7\n", ""},
		{"a loop without an end", "while True: pass", wall, facts.Timeout, facts.LimitWall, "", ""},
		{"a loop that catches", "while True:\n    try:\n        while True: pass\n    except BaseException: pass", wall,
			facts.Timeout, facts.LimitWall, "", ""},
		{"by processor time", "while True: pass", limits(func(l *sandbox.Limits) { l.CPU = 3 * time.Second }),
			facts.Timeout, facts.LimitCPU, "", ""},
		{"all memory", "a = []\nwhile True: a.append('x' * 100000)", memory, facts.OOM, facts.LimitMemory, "",
			"MemoryError"},
		{"memory that is caught goes on", "try:\n    bytearray(1 << 29)\nexcept MemoryError:\n    print('on')", memory,
			facts.OK, "", "on\n", ""},
		{"deep recursion", "def f(): f()\nf()", pythonProfile(nil), facts.Failed, "", "", "RecursionError"},
		{"an event that cannot come", "import asyncio\nawait asyncio.Event().wait()", pythonProfile(nil), facts.Failed, "",
			"", "nothing will bring"},
		{"a flood of output", "while True: print('x' * 10000)", limits(func(l *sandbox.Limits) { l.Output = 1 << 10 }),
			facts.Failed, facts.LimitOutput, "", ""},
		{"a status of waldo's", "import sys; sys.exit(251)", pythonProfile(nil), facts.Failed, "", "", ""},
		{"the disk", "i = 0\nwhile True:\n    open(f'/workspace/output/{i}', 'w').write('x' * 100000)\n    i += 1",
			pythonProfile(nil), facts.Failed, "", "", "Error"},
		{"the input is read-only", "open('/workspace/input/a', 'w')", pythonProfile(nil), facts.Failed, "", "",
			"Read-only file system"},
		{"the input cannot be removed", "import os; os.mkdir('/workspace/input/a')", pythonProfile(nil), facts.Failed, "", "",
			"Read-only file system"},
	} {
		for name, d := range all {
			if name == "confined" && r.out == "" {
				continue // each process compiles there, where this user's folders are closed to it
			}
			if name == "confined" {
				r.p.Limits.Wall = time.Minute
			}
			f := runPython(t, d, r.p, r.code)
			limit := facts.Limit("")
			if f.Limit != nil {
				limit = *f.Limit
			}
			if r.limit == "" && limit == facts.LimitDisk { // a full volume is noticed where the kernel bounds it
				limit = ""
			}
			if f.Status != r.status || limit != r.limit || r.limit != facts.LimitOutput && f.Stdout != r.out ||
				!strings.Contains(f.Stderr, r.errors) {
				t.Errorf("%s, %s: %s, limit %q, %.200q %.300q", r.why, name, f.Status, limit, f.Stdout, f.Stderr)
			}
		}
	}
}

// TestPythonFiles: links and FIFOs that stand in the workspace, put there from outside, lead a program nowhere. The
// same names as ordinary files are read.
func TestPythonFiles(t *testing.T) {
	needsPython(t)
	d := New(Options{State: state(t)})
	b, err := d.Start(t.Context(), pythonProfile(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	dir := b.(*plain).at("output")
	secret := filepath.Join(t.TempDir(), "secret")
	err = errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.WriteFile(filepath.Join(dir, "plain"), []byte("fine"), 0o600),
		os.Symlink("plain", filepath.Join(dir, "near")))
	if err != nil {
		t.Fatal(err)
	}
	job, err := program.Job{Lang: guest.Python, Code: []byte(`
for name in ("plain", "near", "link", "fifo", "../../" + "` + filepath.Base(dir) + `/plain"):
    try:
        print(name, open("/workspace/output/" + name).read())
    except OSError as e:
        print(name, "refused")
`)}.Text()
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Run(t.Context(), sandbox.Command{Argv: PythonArgv, Stdin: guest.Stdin(program.Prelude, job, nil)})
	if err != nil || f.Stdout != "plain fine\nnear fine\nlink refused\nfifo refused\n../../output/plain refused\n" {
		t.Errorf("%v %q %q", err, f.Stdout, f.Stderr)
	}
}

// TestPythonRefused: a sandbox for Python runs no JavaScript and no commands, nor the reverse.
func TestPythonRefused(t *testing.T) {
	needsPython(t)
	for name, d := range drivers(t) {
		for _, row := range []struct {
			p    sandbox.Profile
			argv []string
		}{{pythonProfile(nil), Argv}, {profile(), PythonArgv}, {pythonProfile(nil), []string{"/bin/true"}}} {
			b, err := d.Start(t.Context(), row.p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Run(t.Context(), sandbox.Command{Argv: row.argv}); !errors.Is(err, ErrProgram) {
				t.Errorf("%s %q: %v", name, row.argv, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	small := pythonProfile(func(p *sandbox.Profile) { p.Limits.Memory = 8 << 20 })
	if _, err := New(Options{State: state(t)}).Start(t.Context(), small); err == nil {
		t.Error("a sandbox with too little memory started")
	}
}
