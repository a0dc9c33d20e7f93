package e2b

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/storage/sandboxes"
	"waldo/internal/storage/workspace"
)

// live is what this process has of one sandbox: its commands, and its contexts of code.
type live struct {
	mu       sync.Mutex
	commands map[uint32]*process
	next     uint32
	contexts map[string]*codeContext
	session  call.Session // of waldo; empty: not opened yet
	cells    sync.WaitGroup
	life     context.Context // of its code
	stop     context.CancelFunc
	counted  time.Time     // when spent was
	spent    time.Duration // processor time of the commands that ran then
}

// of returns what this process has of a sandbox.
func (s *server) of(ident string) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live[ident]
	if b == nil {
		b = &live{commands: map[uint32]*process{}, contexts: map[string]*codeContext{}}
		b.life, b.stop = context.WithCancel(s.ctx)
		s.live[ident] = b
	}
	return b
}

// drop ends what this process has of a sandbox.
func (s *server) drop(ident string) {
	s.mu.Lock()
	b := s.live[ident]
	delete(s.live, ident)
	s.mu.Unlock()
	if b != nil {
		s.shut(b)
	}
}

// shut ends the commands and interpreters of a sandbox.
func (s *server) shut(b *live) {
	b.close()
	b.mu.Lock()
	n := b.session
	b.mu.Unlock()
	if n == "" {
		return
	}
	if err := s.h.InForce().Runner.End(n); err != nil {
		slog.Warn("ending the interpreters of a sandbox", "why", err)
	}
	s.h.Sessions.Close(n)
}

// close ends its commands and its code, and returns when they have ended.
func (b *live) close() {
	b.stop()
	b.cells.Wait()
	for _, p := range b.all() {
		p.kill()
		<-p.over
	}
}

// all returns the commands, oldest first.
func (b *live) all() []*process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.commands), func(p, q *process) int { return cmp.Compare(p.pid, q.pid) })
}

// command returns the command of a number or a tag.
func (b *live) command(sel selector) (*process, error) {
	for _, p := range b.all() {
		if sel.PID != nil && p.pid == *sel.PID || sel.Tag != nil && p.tag == *sel.Tag {
			return p, nil
		}
	}
	return nil, fail(404, "no such process")
}

// share exchanges the files of the commands with those of the sandbox, so that each sees what the others wrote.
func (b *live) share() {
	for _, p := range b.all() {
		_ = p.now.Runner.Share(p.call) // one that has just ended has stored its files
	}
}

// session opens the waldo session of a sandbox in this process, where it is not open.
func (s *server) session(is sandboxes.Sandbox) (call.Session, error) {
	b := s.of(is.ID)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = call.Session(is.Session)
	return s.h.SessionOf(is)
}

// options are those of every run in a sandbox.
func (s *server) options(
	now *app.App, b box, is sandboxes.Sandbox, capability call.Capability,
) (runner.Options, error) {
	o, err := now.InSandbox(is)
	if err != nil {
		return o, err
	}
	c, _ := now.Policy.Lookup(capability)
	o.At = home
	o.Hosts, o.Offline = b.hosts(c.Network)
	o.Env = append(o.Env, "E2B_SANDBOX=true", "E2B_SANDBOX_ID="+public(b.ID), "USER=user", "WALDO_VALUES=apart")
	return o, nil
}

// variables are those of a sandbox with those of one command or piece of code, in order. A client chooses them, and
// some make a program run something else: so they are in the arguments of a call, where contracts and humans see them.
func (b box) variables(own map[string]string) (all map[string]string, names []string) {
	all = maps.Clone(b.Env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, own)
	return all, slices.Sorted(maps.Keys(all))
}

// measured returns one measurement of a sandbox.
func (s *server) measured(ctx context.Context, b box, is sandboxes.Sandbox) (map[string]any, error) {
	commands, err := s.m.Commands(ctx, b.Owner, b.ID)
	if err != nil {
		return nil, err
	}
	var spent time.Duration
	var memory int64
	for _, c := range commands {
		spent += c.CPU
		memory += resident(c.PID)
	}
	_, w, done, err := s.m.Files(ctx, b.Owner, b.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	left, err := w.Room(workspace.Files, workspace.Bounds{Bytes: is.Limits.Disk})
	if err != nil {
		return nil, err
	}
	at, l := time.Now(), s.of(b.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	percent := 0.0
	if spent > l.spent && !l.counted.IsZero() {
		percent = 100 * float64(spent-l.spent) / float64(max(at.Sub(l.counted), time.Millisecond))
	}
	l.counted, l.spent = at, spent
	shown := s.shown(b, is)
	return map[string]any{"timestamp": at.UTC(), "timestampUnix": at.Unix(), "cpuCount": 1, "cpuUsedPct": percent,
		"memUsed": memory, "memTotal": shown["memoryMB"].(int64) << 20, "memCache": 0,
		"diskUsed": is.Limits.Disk - left.Bytes, "diskTotal": is.Limits.Disk}, nil
}
