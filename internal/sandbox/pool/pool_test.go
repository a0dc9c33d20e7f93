package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// maker is a driver that counts the sandboxes that it makes and ends.
type maker struct {
	made, warmed, open atomic.Int32
	dead               atomic.Int32 // so many of the next sandboxes are dead
	full               atomic.Bool  // the files of a job do not fit
	assigned           func()       // before each Assign; can be nil
	fail               atomic.Bool
}

func (m *maker) Name() string                         { return "fake" }
func (m *maker) Probe(context.Context) sandbox.Report { return sandbox.Report{OK: true} }
func (m *maker) Start(context.Context, sandbox.Profile) (sandbox.Sandbox, error) {
	if m.fail.Load() {
		return nil, errors.New("no sandbox to be had")
	}
	m.made.Add(1)
	m.open.Add(1)
	return &fake{maker: m, dead: m.dead.Add(-1) >= 0}, nil
}

// fake is a sandbox that does nothing, once.
type fake struct {
	sandbox.Sandbox
	maker   *maker
	adopted atomic.Bool
	closed  atomic.Bool
	dead    bool
	can     sandbox.Abilities
}

func (f *fake) Abilities() sandbox.Abilities { return f.can }

func (f *fake) Warm(context.Context) error { f.maker.warmed.Add(1); return nil }
func (f *fake) Assign(sandbox.Profile) error {
	if f.maker.assigned != nil {
		f.maker.assigned()
	}
	if f.maker.full.Load() {
		return fmt.Errorf("filling /tmp: %w", sandbox.ErrFiles)
	}
	if f.dead || f.adopted.Swap(true) {
		return errors.New("not twice")
	}
	return nil
}
func (f *fake) Run(context.Context, sandbox.Command) (facts.Facts, error) {
	if f.dead {
		return facts.Facts{}, errors.New("dead")
	}
	return facts.Facts{Sandbox: facts.Sandbox{Warm: f.adopted.Load()}}, nil
}
func (f *fake) Close() error {
	if f.closed.Swap(true) {
		return errors.New("closed twice")
	}
	f.maker.open.Add(-1)
	return nil
}

func profile(name string) sandbox.Profile {
	return sandbox.Profile{ID: "s_x", Prestart: &sandbox.Prestart{Argv: []string{name}},
		Tmpfs: []sandbox.Tmpfs{{Target: "/tmp"}}}
}

// until waits for something that comes about behind the runs.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func with(t *testing.T, o Options) (*Driver, *maker) {
	t.Helper()
	m := &maker{}
	d := New(m, o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if n := m.open.Load(); n != 0 {
			t.Errorf("%d sandboxes are still there after Close", n)
		}
	})
	return d, m
}

// use starts a sandbox, runs it and closes it, and reports whether it was warm.
func use(t *testing.T, d *Driver, p sandbox.Profile) bool {
	t.Helper()
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Run(context.Background(), sandbox.Command{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	return f.Sandbox.Warm
}

func TestKeepsNothingByDefault(t *testing.T) {
	d, m := with(t, Options{})
	d.Keep(profile("a"), 3)
	for range 3 {
		if use(t, d, profile("a")) {
			t.Error("warm")
		}
	}
	if m.warmed.Load() != 0 || m.made.Load() != 3 {
		t.Errorf("%d sandboxes made, %d warmed", m.made.Load(), m.warmed.Load())
	}
}

func TestFirstColdThenWarm(t *testing.T) {
	d, _ := with(t, Options{Most: 4})
	p := profile("a")
	if use(t, d, p) {
		t.Error("the first was warm")
	}
	until(t, "a sandbox is ready", func() bool { return d.Ready(p) == 1 })
	p.ID, p.Tmpfs[0].Seed, p.Limits.Wall, p.Limits.Output = "s_other", "/somewhere", 5, 6
	if !use(t, d, p) {
		t.Error("what belongs to one job made it another kind of sandbox")
	}
}

// TestWithoutCommand: if the command is not known in advance, sandboxes are prepared without a process.
func TestWithoutCommand(t *testing.T) {
	d, m := with(t, Options{Most: 4})
	p := profile("")
	p.Prestart = nil
	if use(t, d, p) {
		t.Error("the first was made ahead")
	}
	until(t, "a sandbox is ready", func() bool { return d.Ready(p) == 1 })
	p.ID, p.Limits.Wall = "s_other", 5
	if !use(t, d, p) || m.warmed.Load() != 0 {
		t.Errorf("the sandbox that was ready was not used, or a command was started in it: %d", m.warmed.Load())
	}
}

// TestWhatIsPooled: a sandbox that is not exactly what was asked for is never handed out.
func TestWhatIsPooled(t *testing.T) {
	for _, r := range []struct {
		why  string
		harm func(p *sandbox.Profile)
	}{
		{"another interpreter", func(p *sandbox.Profile) { p.Prestart = &sandbox.Prestart{Argv: []string{"b"}} }},
		{"another head", func(p *sandbox.Profile) { p.Prestart = &sandbox.Prestart{Argv: []string{"a"}, Prelude: "x"} }},
		{"a bridge", func(p *sandbox.Profile) { p.Prestart = &sandbox.Prestart{Argv: []string{"a"}, Bridge: true} }},
		{"more memory", func(p *sandbox.Profile) { p.Limits.Memory++ }},
		{"more processes", func(p *sandbox.Profile) { p.Limits.Pids++ }},
		{"more processor time", func(p *sandbox.Profile) { p.Limits.CPU++ }},
		{"more files", func(p *sandbox.Profile) { p.Limits.Files++ }},
		{"more disk", func(p *sandbox.Profile) { p.Limits.Disk++ }},
		{"another root", func(p *sandbox.Profile) { p.Template.Name = "other" }},
		{"a place more", func(p *sandbox.Profile) { p.Tmpfs = append(p.Tmpfs, sandbox.Tmpfs{Target: "/x"}) }},
		{"a place that comes out", func(p *sandbox.Profile) { p.Tmpfs[0].Export = true }},
		{"a mount, which belongs to one job",
			func(p *sandbox.Profile) { p.Mounts = []sandbox.Mount{{Source: "/a", Target: "/b"}} }},
		{"a shared sandbox, which is made for one job", func(p *sandbox.Profile) { p.Share = &sandbox.Share{Dir: "/a"} }},
		{"hosts, which belong to one job", func(p *sandbox.Profile) { p.Network.Hosts = []string{"example.com"} }},
		{"no word of what will run", func(p *sandbox.Profile) { p.Prestart = nil }},
	} {
		t.Run(r.why, func(t *testing.T) {
			d, _ := with(t, Options{Most: 4})
			d.Keep(profile("a"), 2)
			until(t, "sandboxes are ready", func() bool { return d.Ready(profile("a")) == 2 })
			p := profile("a")
			r.harm(&p)
			if use(t, d, p) {
				t.Error("got a sandbox of another kind")
			}
			if strings.Contains(r.why, "one job") {
				time.Sleep(20 * time.Millisecond)
				if use(t, d, p) {
					t.Error("a sandbox was made ahead with what belongs to one job")
				}
			}
			if !use(t, d, profile("a")) {
				t.Error("control: its own kind is not warm")
			}
		})
	}
}

func TestNoSandboxTwice(t *testing.T) {
	d, _ := with(t, Options{Most: 8})
	p := profile("a")
	d.Keep(p, 8)
	var mu sync.Mutex
	seen := map[sandbox.Warmer]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				b, err := d.Start(context.Background(), p)
				if err != nil {
					t.Error(err)
					return
				}
				if w, ok := b.(*instance); ok {
					mu.Lock()
					if seen[w.Warmer] {
						t.Error("a sandbox was handed out twice")
					}
					seen[w.Warmer] = true
					mu.Unlock()
				}
				if err := errors.Join(b.Close(), closeAgain(b)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(seen) == 0 {
		t.Error("control: no sandbox was warm")
	}
}

// closeAgain closes a warm sandbox once more, which does nothing.
func closeAgain(b sandbox.Sandbox) error {
	if w, ok := b.(*instance); ok {
		return w.Close()
	}
	return nil
}

func TestNeverMoreThanMost(t *testing.T) {
	d, m := with(t, Options{Most: 3})
	names := []string{"a", "b", "c", "d", "e"}
	for range 20 {
		for _, name := range names {
			use(t, d, profile(name))
		}
	}
	until(t, "three are ready", func() bool {
		ready := 0
		for _, name := range names {
			ready += d.Ready(profile(name))
		}
		if ready > 3+makers {
			t.Errorf("%d ready, and 3 are the most", ready)
		}
		return ready == 3
	})
	until(t, "the rest is gone", func() bool { return m.open.Load() <= 3 })
}

func TestDeadSandboxesAreSkipped(t *testing.T) {
	d, m := with(t, Options{Most: 3})
	p := profile("a")
	m.dead.Store(2) // sandboxes that are dead when they are used
	d.Keep(p, 3)
	until(t, "sandboxes are ready", func() bool { return d.Ready(p) == 3 })
	if !use(t, d, p) {
		t.Error("the one that lives was not found")
	}
	d, m = with(t, Options{Most: 3})
	m.dead.Store(3)
	d.Keep(p, 3)
	until(t, "sandboxes are ready", func() bool { return d.Ready(p) == 3 })
	use(t, d, p) // a dead one would fail; one that was made meanwhile lives
}

// TestFilesThatDoNotFit: a job whose files no sandbox holds gets the reason from the first, and the others stay ready.
func TestFilesThatDoNotFit(t *testing.T) {
	d, m := with(t, Options{Most: 3})
	p := profile("a")
	d.Keep(p, 3)
	until(t, "sandboxes are ready", func() bool { return d.Ready(p) == 3 })
	m.full.Store(true)
	if _, err := d.Start(context.Background(), p); !errors.Is(err, sandbox.ErrFiles) {
		t.Errorf("%v", err)
	}
	m.full.Store(false)
	if !use(t, d, p) {
		t.Error("control: a job whose files fit is refused")
	}
}

// TestStartEndsWithItsContext: sandboxes that die over and over do not hold a job beyond its context.
func TestStartEndsWithItsContext(t *testing.T) {
	d, m := with(t, Options{Most: 2})
	p := profile("a")
	m.dead.Store(1 << 30)
	d.Keep(p, 2)
	ctx, cancel := context.WithCancel(context.Background())
	m.assigned = cancel
	until(t, "sandboxes are ready", func() bool { return d.Ready(p) == 2 })
	if _, err := d.Start(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestFailures(t *testing.T) {
	var failed atomic.Int32
	d, m := with(t, Options{Most: 2, Failed: func(error) { failed.Add(1) }})
	m.fail.Store(true)
	d.Keep(profile("a"), 2)
	until(t, "the error is reported", func() bool { return failed.Load() > 0 })
	if _, err := d.Start(context.Background(), profile("a")); err == nil {
		t.Error("the driver's own error is lost")
	}
	m.fail.Store(false)
	until(t, "it tries again", func() bool { return d.Ready(profile("a")) == 2 })
}

func TestAfterClose(t *testing.T) {
	m := &maker{}
	d := New(m, Options{Most: 2})
	p := profile("a")
	d.Keep(p, 2)
	until(t, "sandboxes are ready", func() bool { return d.Ready(p) == 2 })
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if n := m.open.Load(); n != 1 {
		t.Errorf("%d sandboxes are open, not the one that was handed out", n)
	}
	if use(t, d, p) {
		t.Error("a closed pool has a warm sandbox")
	}
	if err := b.Close(); err != nil || m.open.Load() != 0 {
		t.Errorf("%v, %d open", err, m.open.Load())
	}
}

// TestHidesNoAbility: a sandbox of a pool can do all that the sandbox in it can.
func TestHidesNoAbility(t *testing.T) {
	all := sandbox.Abilities{Bridge: func() *os.File { return nil },
		Share: func(string, string) ([]string, error) { return nil, nil },
		Pause: func() error { return nil }, Resume: func() error { return nil },
		Spent: func() sandbox.Use { return sandbox.Use{} }, PID: func() int { return 1 }, Lacks: []string{"a warning"}}
	for _, can := range []sandbox.Abilities{all, {}} {
		inner := reflect.ValueOf(can)
		outer := reflect.ValueOf((&instance{Warmer: &fake{can: can}}).Abilities())
		for i := range inner.NumField() {
			if inner.Field(i).IsNil() != outer.Field(i).IsNil() {
				t.Errorf("%s is hidden, or made up", inner.Type().Field(i).Name)
			}
		}
	}
	for i := range reflect.TypeFor[sandbox.Abilities]().NumField() {
		if reflect.ValueOf(all).Field(i).IsNil() {
			t.Errorf("the test does not know %s", reflect.TypeFor[sandbox.Abilities]().Field(i).Name)
		}
	}
}

// TestPooled: sandboxes with the packages of a template are prepared ahead, those with a folder of one job are not.
func TestPooled(t *testing.T) {
	own := sandbox.Mount{Source: "/a", Target: "/b"}
	packages := sandbox.Mount{Source: "/a", Target: sandbox.PythonAt, Template: true}
	for _, row := range []struct {
		mounts []sandbox.Mount
		want   bool
	}{
		{nil, true}, {[]sandbox.Mount{packages}, true}, {[]sandbox.Mount{own}, false},
		{[]sandbox.Mount{packages, own}, false},
	} {
		if got := pooled(sandbox.Profile{Mounts: row.mounts}); got != row.want {
			t.Errorf("%+v: %t", row.mounts, got)
		}
	}
}
