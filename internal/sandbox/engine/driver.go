package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine/cpython"
	"waldo/internal/sandbox/engine/program"
	"waldo/internal/sandbox/engine/quickjs"
)

// Options are what a driver is made with.
type Options struct {
	State string // the state directory: compiled code goes to engine/ in it
	Exe   string // waldo's own program; empty: the one that runs
	// Progress shows long work, from its first call of Write; nil: nowhere.
	Progress func(what string, bytes int64) io.WriteCloser
	Within   []sandbox.Driver // for the process, the stricter first; the last resort is an ordinary process
}

// Driver makes sandboxes with QuickJS.
type Driver struct {
	options   Options
	choose    sync.Mutex
	chosen    bool
	within    sandbox.Driver  // nil: none works here
	why       []string        // the ones that do not, and why
	compile   sync.Mutex      // guards compiling
	compiling [2]*compilation // of QuickJS and of Python
}

// New returns a driver.
func New(o Options) *Driver { return &Driver{options: o} }

// Name returns "engine".
func (d *Driver) Name() string { return "engine" }

// overhead is the memory of the process beside that of its program, in bytes: waldo's own code, compiled QuickJS, and
// copies of texts on their way. Compiled Python is larger.
const (
	overhead       = 160 << 20
	pythonOverhead = 320 << 20
)

// Limits of the process itself. Its program uses neither processes nor descriptors.
const (
	needPids  = 64
	needFiles = 64
)

// refuse returns an error for a profile that this driver cannot hold to.
func refuse(p sandbox.Profile) error {
	err := errors.Join(p.Validate(), sandbox.NoHosts(p.Network), sandbox.NoShare(p), sandbox.NoWritable(p),
		sandbox.NoOnly(p))
	if p.Template.Dir != "" {
		err = errors.Join(err,
			fmt.Errorf("template %s: a program of this level sees no root filesystem; isolation namespace has templates",
				p.Template.Name))
	}
	for _, m := range p.Mounts {
		if m.Target != "/workspace/input" {
			err = errors.Join(err, fmt.Errorf("mount %s: a program of this level sees /workspace alone", m.Target))
		}
	}
	least := int64(quickjs.MinMemory)
	if isPython(p) {
		least = cpython.MinMemory
		if !cpython.Available() {
			err = errors.Join(err, cpython.ErrAbsent)
		}
	}
	if p.Limits.Memory > 0 && p.Limits.Memory < least {
		err = errors.Join(err, fmt.Errorf("%d bytes of memory: a program of this level needs %d", p.Limits.Memory, least))
	}
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// isPython reports whether the sandbox is for a program in Python.
func isPython(p sandbox.Profile) bool {
	return p.Prestart != nil && slices.Equal(p.Prestart.Argv, PythonArgv)
}

// Start prepares a sandbox.
func (d *Driver) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if err := refuse(p); err != nil {
		return nil, err
	}
	exe := d.options.Exe
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("engine: waldo's own program: %w", err)
		}
	}
	cache, err := d.compiled(ctx, isPython(p))
	if err != nil {
		return nil, err
	}
	within := d.inner(ctx)
	if within == nil {
		return newPlain(p, exe, cache, d.why)
	}
	inner, argv, err := innerProfile(p, exe, cache)
	if err != nil {
		return nil, err
	}
	own, err := within.Start(ctx, inner)
	if err != nil {
		return nil, fmt.Errorf("engine: the sandbox of its process: %w", err)
	}
	b := &instance{Sandbox: own, profile: p, argv: argv}
	if w, ok := own.(sandbox.Warmer); ok {
		return &warmSandbox{b, w}, nil
	}
	return b, nil
}

// innerProfile returns the profile of the process's sandbox, and its command.
func innerProfile(p sandbox.Profile, exe, cache string) (sandbox.Profile, []string, error) {
	argv, err := command(exe, "/workspace", program.Options{Memory: p.Limits.Memory, Disk: p.Limits.Disk, Cache: cache,
		Python: isPython(p)})
	if err != nil {
		return p, nil, err
	}
	beside := int64(overhead)
	if isPython(p) {
		beside = pythonOverhead
	}
	p.Mounts = slices.Clone(p.Mounts)
	for _, at := range []string{exe, cache} {
		if !strings.HasPrefix(at, "/usr/") { // the template shows that
			p.Mounts = append(p.Mounts, sandbox.Mount{Source: at, Target: at})
		}
	}
	p.Limits.Memory += beside
	p.Limits.Pids, p.Limits.Files = max(p.Limits.Pids, needPids), max(p.Limits.Files, needFiles)
	if p.Prestart != nil {
		ahead := *p.Prestart
		ahead.Argv, ahead.Env = argv, environment
		p.Prestart = &ahead
	}
	return p, argv, nil
}

// environment is that of the process; a program's own comes with its job.
var environment = []string{"GOTRACEBACK=none"}

// command is the process's command. Its workspace is an argument of its own, which the driver confined translates.
func command(exe, workspace string, o program.Options) ([]string, error) {
	text, err := json.Marshal(o)
	return []string{exe, Argv[0], string(text), workspace}, err
}

// compiled returns the folder with compiled code. It compiles on the first call, if no waldo has done so before.
// Compiling takes a third of a second, Python's three, and cannot be interrupted: a caller that gives up leaves it
// behind.
func (d *Driver) compiled(ctx context.Context, python bool) (string, error) {
	of, key, compile := &d.compiling[0], quickjs.Digest()[:16], compileQuickJS
	if python {
		of, key, compile = &d.compiling[1], cpython.Key()[:16], compilePython
	}
	d.compile.Lock()
	running := *of
	if running == nil {
		running = &compilation{over: make(chan struct{})}
		*of = running
		go func() {
			defer close(running.over)
			running.dir, running.err = d.compileNow(context.WithoutCancel(ctx), key, compile)
			if running.err != nil { // the next call tries again
				d.compile.Lock()
				*of = nil
				d.compile.Unlock()
			}
		}()
	}
	d.compile.Unlock()
	select {
	case <-running.over:
		return running.dir, running.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// compilation is one attempt to compile. Its other fields are set when over is closed.
type compilation struct {
	over chan struct{}
	dir  string
	err  error
}

func (d *Driver) compileNow(ctx context.Context, key string, compile func(context.Context, string) error) (string,
	error) {
	dir, err := filepath.Abs(filepath.Join(d.options.State, "engine", key))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("engine: the folder of compiled code: %w", err)
	}
	defer d.tick()()
	if err := compile(ctx, dir); err != nil {
		return "", fmt.Errorf("engine: %w", err)
	}
	return dir, nil
}

// tick shows that the driver compiles, until its result is called.
func (d *Driver) tick() (end func()) {
	if d.options.Progress == nil {
		return func() {}
	}
	w := d.options.Progress("compiling the interpreter, once", -1)
	over := make(chan struct{})
	var drawn sync.WaitGroup
	drawn.Go(func() {
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_, _ = w.Write(nil) // the display can be gone
			case <-over:
				_ = w.Close()
				return
			}
		}
	})
	return func() { close(over); drawn.Wait() }
}

func compileQuickJS(ctx context.Context, dir string) error {
	e, err := quickjs.New(ctx, quickjs.MinMemory, dir)
	if err != nil {
		return err
	}
	return e.Close(ctx)
}

func compilePython(ctx context.Context, dir string) error {
	e, err := cpython.New(ctx, cpython.MinMemory, dir)
	if err != nil {
		return err
	}
	return e.Close(ctx)
}

// inner returns the driver for the process: the first that starts a sandbox here; nil: none does.
func (d *Driver) inner(ctx context.Context) sandbox.Driver {
	d.choose.Lock()
	defer d.choose.Unlock()
	if d.chosen {
		return d.within
	}
	d.why = nil
	for _, w := range d.options.Within {
		own, err := w.Start(ctx, trial())
		if ctx.Err() != nil {
			return nil // the next call looks again; this one fails anyway
		}
		if err == nil {
			d.within, d.chosen = w, true
			_ = own.Close()
			return w
		}
		d.why = append(d.why, fmt.Sprintf("%s: %v", w.Name(), err))
	}
	d.chosen = true
	return nil
}

// instance is a sandbox whose process is in one of another driver.
type instance struct {
	sandbox.Sandbox
	profile sandbox.Profile
	argv    []string
}

// ErrProgram is returned for a command that this level cannot run.
var ErrProgram = errors.New("engine: sandboxes of this level run scripts, and no commands")

// runs reports whether a command is that of the profile's language.
func runs(argv []string, p sandbox.Profile) bool {
	if isPython(p) {
		return slices.Equal(argv, PythonArgv)
	}
	return slices.Equal(argv, Argv)
}

// Run runs one program.
func (b *instance) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	if !runs(c.Argv, b.profile) {
		return facts.Facts{}, ErrProgram
	}
	c.Argv, c.Env, c.Dir = b.argv, environment, ""
	f, err := b.Sandbox.Run(ctx, c)
	judge(&f, b.profile)
	return f, err
}

// warmSandbox is a sandbox whose process can be started ahead of its job.
type warmSandbox struct {
	*instance
	inner sandbox.Warmer
}

// Assign gives a sandbox to one job.
func (b *warmSandbox) Assign(p sandbox.Profile) error {
	if err := refuse(p); err != nil {
		return err
	}
	inner, _, err := innerProfile(p, b.argv[0], cacheOf(b.argv))
	if err != nil {
		return err
	}
	if err := b.inner.Assign(inner); err != nil {
		return err
	}
	b.profile = p
	return nil
}

// Warm starts the process ahead of its job.
func (b *warmSandbox) Warm(ctx context.Context) error { return b.inner.Warm(ctx) }

func cacheOf(argv []string) string {
	var o program.Options
	_ = json.Unmarshal([]byte(argv[2]), &o)
	return o.Cache
}

// The usual memory of a process without its program, in bytes: less than every measured one on amd64.
const (
	usualJavaScript = 8 << 20
	usualPython     = 64 << 20
)

// ownMemory estimates a program's own memory from the peak of its process. It is at most the program's limit, which
// WebAssembly enforces. 0 is an unknown peak.
func ownMemory(peak int64, p sandbox.Profile) int64 {
	beside := int64(usualJavaScript)
	if isPython(p) {
		beside = usualPython
	}
	if peak == 0 {
		return 0
	}
	return min(max(peak-beside, 1<<20), p.Limits.Memory)
}

// judge makes the facts of a process those of its program. A program cannot choose the statuses that it reads.
func judge(f *facts.Facts, p sandbox.Profile) {
	f.Sandbox.Driver, f.Sandbox.ID, f.Limits.MemoryBytes, f.Limits.Pids = "engine", p.ID, p.Limits.Memory, p.Limits.Pids
	f.Usage.MemoryPeak = ownMemory(f.Usage.MemoryPeak, p)
	if f.ExitCode == nil || f.Limit != nil {
		return
	}
	switch *f.ExitCode {
	case program.ExitMemory:
		f.Status, f.Limit, f.OOMKilled = facts.OOM, new(facts.LimitMemory), true
	case program.ExitCPU:
		f.Status, f.Limit, f.TimedOut = facts.Timeout, new(facts.LimitCPU), true
	case program.ExitSuspended:
		f.Status = facts.Waiting
	case program.ExitBroken:
		f.Warnings = append(f.Warnings, "the interpreter itself failed, and not the program")
	default:
		return
	}
	f.ExitCode = nil
}
