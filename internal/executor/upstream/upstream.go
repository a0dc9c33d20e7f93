// Package upstream reaches MCP servers: it starts them on demand, lists their tools, and carries out calls that a
// grant permits. It isolates each server's failures from the others. Server output is untrusted; a server's own
// requests are refused unless the operator allows them.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/executor/upstream/bounds"
	"waldo/internal/executor/upstream/eras"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/network/a2apeer"
	"waldo/internal/network/mcphttp"
	"waldo/internal/sandbox"
)

// Process is a server that was started.
type Process struct {
	Stdin    io.WriteCloser
	Stdout   io.ReadCloser
	Stderr   io.Reader     // may be nil
	Wait     func() error  // returns when the process has ended
	Kill     func()        // ends the process and all it has started; may be called twice
	Sandbox  facts.Sandbox // where it runs, as the launcher knows it
	Made     string        // a digest of its start parameters; equal digests mean interchangeable processes
	Warnings []string      // about the place where it runs, for the facts of each call
	// Share syncs its files with those of its session, and returns the names of the files left since the last call.
	// Nil: it shares none.
	Share func() (left []string, err error)
	// Reached adds to the facts what its sandbox tried to reach since the last report. Nil: its egress has no report.
	Reached func(*facts.Facts)
	// Spent returns what it has used so far, or the zero Use once it has ended. Nil: nothing measures it.
	Spent func() sandbox.Use
}

// spent returns what the process has used so far.
func (p *Process) spent() sandbox.Use {
	if p == nil || p.Spent == nil {
		return sandbox.Use{}
	}
	return p.Spent()
}

// since adds to the facts of a call what the process has used since. Calls at the same time are in it too. The memory
// is the peak of the process if it rose since; else what it had before or has now, whichever is more.
func (p *Process) since(before sandbox.Use, f *facts.Facts) {
	now := p.spent()
	if now == (sandbox.Use{}) {
		return
	}
	f.Usage.CPUMS = facts.MS(max(0, now.CPU-before.CPU))
	if f.Usage.MemoryPeak = max(before.Memory, now.Memory); now.Peak > before.Peak {
		f.Usage.MemoryPeak = now.Peak
	}
}

// end ends the process, if there is one.
func (p *Process) end() {
	if p != nil {
		p.Kill()
		_ = p.Stdin.Close()
	}
}

// reap waits for the exit of the process, if there is one, and returns how it ended, if that was of its own accord.
func (p *Process) reap() (own error) {
	if p == nil {
		return nil
	}
	over := make(chan error, 1)
	go func() { over <- p.Wait() }()
	select {
	case own = <-over:
		if own == nil {
			own = errOver
		}
		p.end() // however the connection ended, no process remains
	case <-time.After(lastWords):
		p.end()
		<-over
	}
	_ = p.Stdout.Close()
	return own
}

var errOver = errors.New("its program ended: exit status 0")

// lastWords is how long a program whose output has ended may take to end as well, before it is ended.
const lastWords = time.Second

// Launcher starts a server where its placement says, for one session or for all ("").
type Launcher interface {
	Launch(ctx context.Context, s contract.Server, n call.Session) (Process, error)
}

// Options are what the manager is made of. Launcher is needed for programs, Remote for servers at a url.
type Options struct {
	Launcher  Launcher
	Remote    func(context.Context, contract.Server) (mcphttp.Options, error) // for servers at a url; can be nil
	Questions a2apeer.Questions                                               // of peers; nil: no person here answers them
	Seal      func(text string) string                                        // a keyed digest of this state directory
	Lock      *lockfile.Lock                                                  // accepted definitions
	Eras      *eras.Book                                                      // legacy servers; nil: not remembered
	Watcher   Watcher                                                         // nil: nobody watches
	Cleaner   Cleaner                                                         // nil: stderr is dropped
	Log       *slog.Logger                                                    // nil: nothing is logged
	Clock     Clock                                                           // nil: the machine's
	Version   string                                                          // our version, sent to servers
	Start     time.Duration                                                   // how long a start may take; 0: 60 s
	Probe     time.Duration                                                   // reply timeout; 0: 3 s
}

// Watcher is called after something of a server changed.
type Watcher interface {
	ToolsChanged(server string)
	OffersChanged(server string) // its prompts and resources
	ResourceUpdated(server, uri string)
	// BreakerChanged is called after a circuit breaker opened, or closed: until is zero. For a server that rests, fails
	// is zero.
	BreakerChanged(server string, fails int, until time.Time)
}

// Unwatched is a Watcher that does nothing.
type Unwatched struct{}

// ToolsChanged does nothing.
func (Unwatched) ToolsChanged(string) {}

// OffersChanged does nothing.
func (Unwatched) OffersChanged(string) {}

// ResourceUpdated does nothing.
func (Unwatched) ResourceUpdated(string, string) {}

// BreakerChanged does nothing.
func (Unwatched) BreakerChanged(string, int, time.Time) {}

// Cleaner takes secrets out of what a program wrote.
type Cleaner interface {
	Clean(text string) string
	// Window cuts a text, and leaves no part of a secret at its edges.
	Window(text string, start, end int, before, after bool) string
	Part(text string) bool // whether it holds half of a secret, or more
}

// Manager holds the upstreams of one configuration.
type Manager struct {
	o       Options
	servers map[string]*server
	own     []*server // those that it has made; servers may have others, see Inherit
	closing sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	lock    atomic.Pointer[lockfile.Lock]
	room    chan struct{} // holds a token for each program that is being started
}

// maxLaunches is how many programs are started at once, sandboxes and all. A start ends with the program running: one
// that is slow to answer holds up no other.
const maxLaunches = 8

func (m *Manager) launch(ctx context.Context, s *server) (Process, error) {
	select {
	case m.room <- struct{}{}:
	case <-ctx.Done():
		return Process{}, ctx.Err()
	}
	defer func() { <-m.room }()
	return m.o.Launcher.Launch(ctx, s.cfg, s.owner)
}

// server is one upstream, running or not.
type server struct {
	m   *Manager // that has made it
	cfg contract.Server
	// holders counts the managers that it belongs to: with the last it ends.
	holders atomic.Int32
	circuit circuit      // of the upstream; a child or replica uses that of its parent
	owner   call.Session // its only session; empty: shared

	changed, offers *bounds.Pace // notifications of its list changes, passed on

	mu       sync.Mutex
	session  *session                 // nil: not running
	starting chan struct{}            // closed when the start under way is over; nil without one
	abort    context.CancelFunc       // ends that start
	failed   error                    // of the last start
	failedAt time.Time                // when it last failed to start, or ended
	falls    int                      // how often in a row it has done so
	children map[call.Session]*server // with per_session
	over     bool                     // stopped: neither it nor a child or replica of it starts again
	legacy   bool                     // it is known not to speak the newest revision
	starts   int
	using    int         // calls under way
	unused   time.Time   // since when it is unused
	idle     *time.Timer // nil: not set
	pins     pins
	subs     map[string]map[call.Session]bool // subscribers by resource
	replicas []*server                        // of the same server, for calls that must be alone
	told     map[string]any                   // announced capabilities; nil: all that the operator allows
	both     bool                             // it has a legacy session for a host, and speaks both eras
	single   bool                             // it only claimed to speak both
	recent   *server                          // the replica that had the last call; nil: none
	taken    bool                             // by a call that must be alone
	user     call.Principal                   // of that call
	freed    chan struct{}                    // closed when one of them is free again; nil without a waiter
}

// New makes a manager. No server is started before it is needed.
func New(servers map[string]contract.Server, o Options) *Manager {
	if o.Start == 0 {
		o.Start = time.Minute
	}
	if o.Probe == 0 {
		o.Probe = 3 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	if o.Watcher == nil {
		o.Watcher = Unwatched{}
	}
	m := &Manager{o: o, servers: map[string]*server{}, room: make(chan struct{}, maxLaunches)}
	m.lock.Store(o.Lock)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	for name, cfg := range servers {
		cfg.Name = name
		m.servers[name] = &server{m: m, cfg: cfg, changed: bounds.For(m.ctx, name, o.Watcher.ToolsChanged),
			offers: bounds.For(m.ctx, name, o.Watcher.OffersChanged), subs: map[string]map[call.Session]bool{}}
		m.servers[name].holders.Store(1)
		m.own = append(m.own, m.servers[name])
	}
	return m
}

// Names returns the names of the upstreams, sorted.
func (m *Manager) Names() []string {
	var out []string
	for name := range m.servers {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// Close ends every server that no other manager has, and waits until they are gone.
func (m *Manager) Close() error {
	m.closing.Do(func() {
		var stopping sync.WaitGroup
		for _, s := range m.servers {
			if s.holders.Add(-1) == 0 {
				stopping.Go(s.stop)
			}
		}
		stopping.Wait()
		m.finish()
		for _, s := range m.servers {
			s.m.finish()
		}
	})
	return nil
}

// Tools returns the tools of one server that are not in quarantine, each under "server.tool" with
// its definition as the server gave it. It starts the server if need be.
func (m *Manager) Tools(ctx context.Context, name string) ([]call.Tool, error) {
	s := m.servers[name]
	if s == nil {
		return nil, fmt.Errorf("no server is called %q", name)
	}
	if _, err := s.list(ctx); err != nil {
		return nil, unrested(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pins.good(), nil
}

// Quarantined returns the last listed definitions of a server that are hidden from agents.
func (m *Manager) Quarantined(name string) []Quarantine {
	s := m.servers[name]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pins.quarantine()
}

// use returns a running session and a function that releases it. It starts the server if need be; many callers can
// wait for one start.
func (s *server) use(ctx context.Context) (*session, func(), error) {
	for range 3 { // a server that starts well and ends at once is not started for ever
		s.mu.Lock()
		if s.session != nil && s.session.alive() {
			ses := s.session
			s.using++
			s.mu.Unlock()
			return ses, s.release, nil
		}
		if s.over {
			s.mu.Unlock()
			return nil, nil, fmt.Errorf("server %s: %w", s.cfg.Name, errStopped)
		}
		if s.starting == nil {
			if rest := s.backoff(); rest > 0 {
				err := s.failed // it has only just failed
				s.mu.Unlock()
				return nil, nil, &restError{rest, cmp.Or(err, errCrashed)}
			}
			s.begin()
		}
		starting := s.starting
		s.mu.Unlock()
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		s.mu.Lock()
		err := s.failed
		s.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("server %s: it ends as soon as it has started", s.cfg.Name)
}

// restError says that a server is left alone for a time, since it did not start or has ended too often.
type restError struct {
	left time.Duration
	why  error
}

func (r *restError) Error() string { return fmt.Sprintf("%v (retrying in %s)", r.why, r.again()) }

// unrested strips the retry time from a backoff error: listing has its own retry schedule.
func unrested(err error) error {
	if rest := (*restError)(nil); errors.As(err, &rest) {
		return rest.why
	}
	return err
}

func (r *restError) Unwrap() error { return r.why }

func (r *restError) again() string { return max(r.left, time.Second).Round(time.Second).String() }

// startError is why a server did not start. It was logged when that happened.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// warn logs why a server could not be queried. It skips a repeated reason, and a cancelled context.
func (s *server) warn(ctx context.Context, what string, err error) {
	if known := (*startError)(nil); !errors.As(err, &known) && !errors.Is(context.Cause(ctx), context.Canceled) {
		s.m.o.Log.Warn(what, "server", s.cfg.Name, "error", err)
	}
}

// errStopped answers those who still ask for a server of a session or a configuration that is over.
var errStopped = errors.New("its session or its configuration is over")

var errCrashed = errors.New("it has ended soon after its start, again and again")

// begin starts the server in the background, so that no caller's patience ends a start that others
// wait for. The lock is held.
func (s *server) begin() {
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(s.m.ctx, s.m.o.Start)
	s.starting, s.abort = done, cancel
	s.starts++
	s.m.running.Add(1)
	go func() {
		defer s.m.running.Done()
		defer cancel()
		ses, err := s.start(ctx)
		if err != nil {
			err = &startError{err}
		}
		s.mu.Lock()
		s.session, s.failed, s.starting, s.abort = ses, err, nil, nil
		if err != nil {
			s.crashed(false, 0)
		}
		if ses != nil && s.subs != nil {
			defer ses.resume(s.m.ctx)
		}
		if s.m.ctx.Err() != nil && ses != nil {
			ses.kill()
		}
		s.rest()
		s.mu.Unlock()
		close(done)
		if err != nil {
			s.m.o.Log.Warn("server did not start", "server", s.cfg.Name, "error", err)
		}
	}()
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.using--
	s.rest()
}

// rest records that the server is unused, and ends it after its idle timeout. The caller holds the lock. One timer
// serves many calls: to set it for each would cost more than some of them.
func (s *server) rest() {
	if s.using > 0 || s.session == nil || s.cfg.IdleTimeout <= 0 {
		return
	}
	s.unused = time.Now()
	if s.idle == nil {
		s.idle = time.AfterFunc(s.cfg.IdleTimeout, s.expire)
	}
}

// expire ends the server if it was unused for its idle timeout, and checks again later otherwise.
func (s *server) expire() {
	s.mu.Lock()
	s.idle = nil
	ses, left := s.session, s.cfg.IdleTimeout-time.Since(s.unused)
	switch {
	case ses == nil || s.using > 0: // the release of the last user sets the timer
		ses = nil
	case left > 0:
		ses, s.idle = nil, time.AfterFunc(left, s.expire)
	default:
		s.session = nil
	}
	s.mu.Unlock()
	if ses != nil {
		ses.stop()
	}
}

// stop ends the server for good, with its replicas and children. It waits until their processes have ended. A start
// under way is aborted.
func (s *server) stop() {
	s.mu.Lock()
	for _, t := range s.replicas {
		defer t.stop()
	}
	for _, c := range s.children {
		defer c.stop()
	}
	s.over = true
	if starting := s.starting; starting != nil {
		s.abort()
		s.mu.Unlock()
		<-starting
		s.mu.Lock()
	}
	ses := s.session
	s.session = nil
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	s.mu.Unlock()
	if ses != nil {
		ses.stop()
	}
}
