package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/engine/program"
)

// plain is a sandbox whose process is an ordinary one. It has a folder for its files, which the program sees through
// names of its own alone.
type plain struct {
	profile sandbox.Profile
	exe     string
	cache   string
	warning string
	dir     string
	before  map[string]stamp

	mu     sync.Mutex
	end    func() // ends the process that runs; nil: none does
	closed bool
}

func newPlain(p sandbox.Profile, exe, cache string, why []string) (*plain, error) {
	if err := sandbox.NoHidden(p); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	dir, err := os.MkdirTemp("", "waldo-engine-")
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	b := &plain{profile: p, exe: exe, cache: cache, warning: plainWarning(why), dir: dir}
	for _, name := range []string{"output", "tmp", "input"} {
		err = errors.Join(err, os.Mkdir(b.at(name), 0o700))
	}
	for _, t := range p.Tmpfs {
		if name, ok := strings.CutPrefix(t.Target, "/workspace/"); ok && filepath.IsLocal(name) && t.Seed != "" {
			err = errors.Join(err, copyTree(t.Seed, b.at(name), bounds{t.Bytes, t.Inodes}, t.Only, nil))
		}
	}
	for _, m := range p.Mounts { // of the input alone; the process never writes there
		err = errors.Join(err, os.Remove(b.at("input")), os.Symlink(m.Source, b.at("input")))
	}
	if err == nil {
		b.before, err = stamps(b.at("output"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine: the folder of the program: %w", err), os.RemoveAll(dir))
	}
	return b, nil
}

func (b *plain) at(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

// Run runs one program.
func (b *plain) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	if !runs(c.Argv, b.profile) || c.TTY != nil || c.Serve {
		return facts.Facts{}, ErrProgram
	}
	began := time.Now()
	l := b.profile.Limits
	o := program.Options{Memory: l.Memory, Disk: l.Disk, CPU: l.CPU, Cache: b.cache, Python: isPython(b.profile)}
	out := &capture{limit: l.Output, to: c.Stdout, pass: c.Pass, cut: c.Cut}
	errs := &capture{limit: l.Output, to: c.Stderr, pass: c.Pass, cut: c.Cut}
	process, cleanup, err := b.command(c, &o)
	if err != nil {
		return facts.Facts{}, err
	}
	defer cleanup()
	process.Stdin, process.Stdout, process.Stderr = c.Stdin, out, errs
	process.WaitDelay = time.Second // for streams that nothing will end
	var ended facts.Limit
	var once sync.Once
	kill := func(limit facts.Limit) {
		once.Do(func() { ended = limit; _ = process.Process.Kill() })
	}
	out.flood, errs.flood = func() { kill(facts.LimitOutput) }, func() { kill(facts.LimitOutput) }
	if err := b.begin(process, func() { kill("") }); err != nil {
		return facts.Facts{}, fmt.Errorf("engine: %w", err)
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { b.watch(ctx, done, began, c.Clock, kill) })
	err = process.Wait()
	close(done)
	watch.Wait()
	b.mu.Lock()
	b.end = nil
	b.mu.Unlock()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && process.ProcessState == nil {
		return facts.Facts{}, fmt.Errorf("engine: %w", err)
	}
	return b.facts(ctx, process, out, errs, ended, time.Since(began)), nil
}

// begin starts the process, unless the sandbox was closed.
func (b *plain) begin(process *exec.Cmd, end func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return os.ErrClosed
	}
	err := process.Start()
	b.end = end
	return err
}

// command makes the process and its bridge.
func (b *plain) command(c sandbox.Command, o *program.Options) (*exec.Cmd, func(), error) {
	life, hold, err := os.Pipe() // its end tells the process that waldo is gone
	if err != nil {
		return nil, nil, err
	}
	files := []*os.File{life}
	cleanup := func() { _ = hold.Close(); _ = life.Close() }
	if c.Bridge != nil {
		files = append(files, c.Bridge)
	}
	process := exec.Command(b.exe)
	handles := inherit(process, files)
	o.Life = handles[0]
	if len(handles) > 1 {
		o.Bridge = handles[1]
	}
	if process.Args, err = command(b.exe, b.dir, *o); err != nil {
		cleanup()
		return nil, nil, err
	}
	process.Env = append([]string{"SYSTEMROOT=" + os.Getenv("SYSTEMROOT")}, environment...)
	process.Dir = b.dir
	return process, cleanup, nil
}

// watch ends the process at its wall-clock limit and with its call.
func (b *plain) watch(ctx context.Context, done <-chan struct{}, began time.Time, clock *sandbox.Clock,
	kill func(facts.Limit)) {
	wall := time.NewTimer(b.profile.Limits.Wall)
	defer wall.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			kill("")
			return
		case <-wall.C:
			if left := clock.Left(began, b.profile.Limits.Wall); left > 0 {
				wall.Reset(sandbox.Again(left))
				continue
			}
			kill(facts.LimitWall)
			return
		}
	}
}

func (b *plain) facts(ctx context.Context, process *exec.Cmd, out, errs *capture, ended facts.Limit,
	wall time.Duration) facts.Facts {
	l, s := b.profile.Limits, process.ProcessState
	f := facts.New()
	f.Sandbox = facts.Sandbox{ID: b.profile.ID, Driver: "engine", Template: b.profile.Template.Name}
	f.Limits = facts.Limits{WallMS: l.Wall.Milliseconds(), CPUMS: l.CPU.Milliseconds(), MemoryBytes: l.Memory,
		Pids: l.Pids}
	f.Stdout, f.Stderr = out.text(), errs.text()
	f.Truncated = facts.Truncated{Stdout: out.total > l.Output, Stderr: errs.total > l.Output}
	f.Usage = facts.Usage{WallMS: facts.MS(wall), CPUMS: facts.MS(s.UserTime() + s.SystemTime()),
		MemoryPeak: peak(s), PidsPeak: 1,
		OutputBytes: out.total + errs.total}
	b.changes(&f)
	f.Status = facts.Failed
	if s.Exited() {
		f.ExitCode = new(s.ExitCode())
		if s.ExitCode() == 0 {
			f.Status = facts.OK
		}
	} else {
		f.Signal = new("SIGKILL")
	}
	switch {
	case ended != "":
		f.Limit, f.ExitCode, f.Status = new(ended), nil, facts.Failed
		if f.TimedOut = ended == facts.LimitWall; f.TimedOut {
			f.Status = facts.Timeout
		}
	case ctx.Err() != nil && f.Status != facts.OK:
		f.Status = facts.Cancelled
	}
	f.Warnings = append(f.Warnings, b.warning)
	judge(&f, b.profile)
	return f
}

// Export copies the files of the output.
func (b *plain) Export(target, dir string) ([]string, error) {
	name, ok := strings.CutPrefix(target, "/workspace/")
	if !ok || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("engine: %s cannot be copied out", target)
	}
	var names []string
	err := copyTree(b.at(name), dir, bounds{b.profile.Limits.Disk, b.profile.Limits.Inodes}, nil, &names)
	return names, err
}

// Abilities satisfies sandbox.Sandbox: it has none.
func (b *plain) Abilities() sandbox.Abilities {
	return sandbox.Abilities{Lacks: []string{b.warning}}
}

// Close ends the process and removes its folder.
func (b *plain) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.end != nil {
		b.end()
	}
	return os.RemoveAll(b.dir)
}

// floodFactor is how often a stream may pass its limit before the run is ended for it.
const floodFactor = 64

// capture keeps the first bytes of a stream.
type capture struct {
	limit, total int64
	to           io.Writer
	pass         bool
	cut          func(text string, n int, more bool) int
	flood        func()
	kept, after  []byte
}

// Write satisfies io.Writer. It always takes all.
func (c *capture) Write(b []byte) (int, error) {
	n := len(b)
	c.total += int64(n)
	keep := b[:min(int64(n), c.limit-int64(len(c.kept)))]
	c.kept = append(c.kept, keep...)
	over := b[len(keep):]
	c.after = append(c.after, over[:min(len(over), 64<<10-len(c.after))]...)
	if !c.pass {
		b = keep
	}
	if c.to != nil && len(b) > 0 {
		if _, err := c.to.Write(b); err != nil {
			c.to = nil
		}
	}
	if (!c.pass || c.to == nil) && c.total > floodFactor*c.limit {
		c.flood()
	}
	return n, nil
}

// text returns the stored bytes, without the beginning of a secret at the end.
func (c *capture) text() string {
	kept := c.kept
	if c.cut != nil && c.total > c.limit {
		all := string(kept) + string(c.after)
		kept = kept[:c.cut(all, len(kept), c.total > int64(len(all)))]
	}
	return strings.ToValidUTF8(string(kept), "\uFFFD")
}
