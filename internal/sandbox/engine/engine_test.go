package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// drivers are the ways in which the process of a program can be held. The driver confined gives /tmp another meaning,
// so this program is copied for it.
func drivers(t *testing.T) map[string]*Driver {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "waldo-engine-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "waldo")
	text, err := os.ReadFile(exe)
	if err == nil {
		err = os.WriteFile(copied, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Driver{
		"namespace": New(Options{State: state(t),
			Within: []sandbox.Driver{namespace.New(namespace.Options{MilliCPU: 1000})}}),
		"confined": New(Options{Exe: copied, State: state(t),
			Within: []sandbox.Driver{confined.New(confined.Options{MilliCPU: 1000})}}),
		"plain": New(Options{State: state(t)}),
	}
}

// profile is one of a program with all folders.
func profile() sandbox.Profile {
	p := trial()
	p.Limits.Disk, p.Limits.Output = 1<<20, 64<<10
	p.Tmpfs = nil
	for _, at := range []string{"/workspace/input", "/workspace/output", "/workspace/tmp"} {
		p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: at, Bytes: 1 << 20, Inodes: 100,
			Export: at == "/workspace/output"})
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
		if r := d.Probe(context.Background()); !r.OK {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// limited returns a profile with a small limit of one kind.
func limited(change func(*sandbox.Limits)) sandbox.Profile {
	p := profile()
	change(&p.Limits)
	return p
}

// TestAbuse: hostile programs end with the refusal that is theirs, however their process is held.
func TestAbuse(t *testing.T) {
	const second = time.Second
	wall := limited(func(l *sandbox.Limits) { l.Wall = second })
	cpu := limited(func(l *sandbox.Limits) { l.CPU = second })
	memory := limited(func(l *sandbox.Limits) { l.Memory = 16 << 20 })
	out := limited(func(l *sandbox.Limits) { l.Output = 1 << 10 })
	all := drivers(t)
	for _, r := range []struct {
		why, code string
		p         sandbox.Profile
		status    facts.Status
		limit     facts.Limit
		out       string // of standard output
		errors    string // part of standard error
	}{
		{"nothing in the way (control)", "console.log(1)", profile(), facts.OK, "", "1\n", ""},
		{"a loop without an end, by the clock", "for (;;);", wall, facts.Timeout, facts.LimitWall, "", ""},
		{"a loop without an end, by processor time", "for (;;);", cpu, facts.Timeout, facts.LimitCPU, "", ""},
		{"a loop that catches", "for (;;) try { for (;;); } catch {} finally { continue }", wall, facts.Timeout,
			facts.LimitWall, "", ""},
		{"a loop of promises", "(async () => { for (;;) await null })()", wall, facts.Timeout, facts.LimitWall, "", ""},
		{"a loop of timers", "setInterval(() => {}, 0)", wall, facts.Timeout, facts.LimitWall, "", ""},
		{"a loop in the end of a program", "process.on('exit', () => { for (;;); }); for (;;);", wall,
			facts.Timeout, facts.LimitWall, "", ""},
		{"a regular expression that backtracks", "/^(a+)+$/.test('a'.repeat(64) + 'b')", wall, facts.Timeout,
			facts.LimitWall, "", ""},
		{"a loop inside the interpreter", "const a = Array(1e7); for (;;) a.toString === 0 || a.join('')", cpu,
			facts.Timeout, facts.LimitCPU, "", ""},
		{"all memory", "const a = []; for (;;) a.push('x'.repeat(1e4) + a.length)", memory, facts.OOM,
			facts.LimitMemory, "", "out of memory"},
		{"all memory in bytes", "const a = []; for (;;) a.push(new Uint8Array(1e6))", memory, facts.OOM,
			facts.LimitMemory, "", "out of memory"},
		{"a text that is too long", "let s = 'x'; for (;;) s += s", profile(), facts.Failed, "", "", "string too long"},
		{"memory that is caught goes on",
			"try { const a = []; for (;;) a.push('x'.repeat(1e5) + a.length) } catch (e) { console.log(e.message) }", memory,
			facts.OK, "", "out of memory\n", ""},
		{"deep recursion", "const f = () => f(); f()", profile(), facts.Failed, "", "",
			"RangeError: Maximum call stack size exceeded"},
		{"deep JSON", "JSON.parse('['.repeat(1e6))", profile(), facts.Failed, "", "",
			"Maximum call stack size exceeded"},
		{"a flood of output", "for (;;) console.log('x'.repeat(1e4))", out, facts.Failed, facts.LimitOutput, "", ""},
		{"a status of waldo's", "process.exit(251)", profile(), facts.Failed, "", "", ""},
		{"prototypes of the runtime",
			`Object.prototype.then = null; Array.prototype.push = () => 1; String.prototype.split = null; JSON.parse = null;
			Map.prototype.get = () => { throw 1 }; Promise.prototype.then = null; console.log('on')`, profile(), facts.OK, "", "on\n", ""},
		{"the disk", "for (let i = 0; ; i++) workspace.write('f' + i, 'x'.repeat(1e5))", profile(), facts.Failed,
			"", "", "ENOSPC"},
		{"a link out", "require('fs').readFileSync('/workspace/output/../../etc/hostname')", profile(),
			facts.Failed, "", "", "ENOENT"},
		{"the input is read-only", "require('fs').writeFileSync('/workspace/input/a', 'x')", profile(),
			facts.Failed, "", "", "EROFS"},
		{"a module of the machine", "await import('/etc/hostname')", profile(), facts.Failed, "", "",
			"Cannot find module '/etc/hostname'"},
	} {
		for name, d := range all {
			if name == "confined" && r.p.Limits.Wall != second && r.p.Limits.Memory != 16<<20 && r.status != facts.OK {
				continue // each process compiles there, where this user's folders are closed to it
			}
			f := run(t, d, r.p, r.code)
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

// TestFiles: a program starts with the session's files and leaves its own, and nothing else.
func TestFiles(t *testing.T) {
	seed := t.TempDir()
	for name, text := range map[string]string{"kept": "1", "changed": "1", "gone": "1"} {
		if err := os.WriteFile(filepath.Join(seed, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(seed, 0o755); err != nil {
		t.Fatal(err)
	}
	p := profile()
	p.Tmpfs[1].Seed = seed
	for name, d := range drivers(t) {
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		job, err := program.Job{Lang: guest.JavaScript, Code: []byte(`const fs = require('fs');
			fs.writeFileSync('/workspace/output/changed', fs.readFileSync('/workspace/output/kept', 'utf8') + '2');
			fs.unlinkSync('/workspace/output/gone'); workspace.write('sub/new', 'n');`)}.Text()
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(t.Context(), sandbox.Command{Argv: Argv, Stdin: guest.Stdin(program.Prelude, job, nil)})
		if err != nil || f.Status != facts.OK {
			t.Fatalf("%s: %v %+v", name, err, f)
		}
		if got := strings.Join(f.Files.Written, " "); got != "/workspace/output/changed /workspace/output/sub/new" {
			t.Errorf("%s: written %s", name, got)
		}
		to := t.TempDir()
		if _, err := b.Export("/workspace/output", to); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(to, "changed")); err != nil || string(text) != "12" {
			t.Errorf("%s: %q %v", name, text, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRefuse: profiles and commands that a program's sandbox cannot hold to.
// The process has memory of its own, which is not the program's.
func TestOwnMemory(t *testing.T) {
	p := profile()
	p.Limits.Memory = 64 << 20
	for _, row := range []struct{ peak, want int64 }{
		{0, 0}, {5 << 20, 1 << 20}, {14 << 20, 6 << 20}, {121 << 20, 64 << 20},
	} {
		f := facts.New()
		f.Usage.MemoryPeak = row.peak
		judge(&f, p)
		if f.Usage.MemoryPeak != row.want {
			t.Errorf("a peak of %d: %d, want %d", row.peak, f.Usage.MemoryPeak, row.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	for why, change := range map[string]func(*sandbox.Profile){
		"a template":        func(p *sandbox.Profile) { p.Template = sandbox.Template{Name: "x", Dir: "/srv/x"} },
		"another mount":     func(p *sandbox.Profile) { p.Mounts = []sandbox.Mount{{Source: "/srv", Target: "/srv"}} },
		"a shared sandbox":  func(p *sandbox.Profile) { p.Share = &sandbox.Share{Dir: "/srv"} },
		"no limit":          func(p *sandbox.Profile) { p.Limits.Wall = 0 },
		"too little memory": func(p *sandbox.Profile) { p.Limits.Memory = 1 << 20 },
	} {
		p := profile()
		change(&p)
		if _, err := New(Options{State: state(t)}).Start(t.Context(), p); err == nil {
			t.Errorf("%s: a sandbox started", why)
		}
	}
	for name, d := range drivers(t) {
		b, err := d.Start(t.Context(), profile())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/true"}}); !errors.Is(err, ErrProgram) {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// shown counts what a display of progress gets.
type shown struct{ closed bool }

func (s *shown) Write(b []byte) (int, error) { return len(b), nil }
func (s *shown) Close() error                { s.closed = true; return nil }

// The first compiling shows that it goes on, and takes the display away.
func TestCompileShowsProgress(t *testing.T) {
	var what string
	w := &shown{}
	d := New(Options{State: t.TempDir(), Progress: func(text string, _ int64) io.WriteCloser { what = text; return w }})
	if _, err := d.compiled(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if what != "compiling the interpreter, once" || !w.closed {
		t.Errorf("%q, closed %v", what, w.closed)
	}
}
