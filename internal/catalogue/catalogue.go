// Package catalogue is the one list of what an agent may ask for: waldo's own tools and those of the
// upstreams, under names that cannot be mistaken for each other, with search over them.
package catalogue

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"waldo/internal/call"
	"waldo/internal/schema"
)

// Source lists the tools of one upstream, each under "server.tool".
type Source func(ctx context.Context) ([]call.Tool, error)

// Options say what the list is made of. The zero Options make an empty one.
type Options struct {
	Builtins []call.Tool
	Sources  map[string]Source              // by server
	Visible  func(cap call.Capability) bool // whether a contract line speaks of it; nil: none does
	Clean    func(text string) string       // makes untrusted text safe to show; nil: it is not shown
	Load     time.Duration                  // how long one source may take; 0: 60 s
	Wait     time.Duration                  // how long a reader waits for slow sources; 0: 10 s
	Retry    time.Duration                  // before a source that failed is asked again; 0: 15 s
}

// Entry is one tool as it is shown.
type Entry struct {
	call.Tool // with cleaned text and a schema that every client takes
	Wire      string
	check     *schema.Schema
	terms     map[string]float32
}

// Problem is a tool or a server that is not in the list, and why.
type Problem struct {
	Server     string          `json:"server"`
	Capability call.Capability `json:"capability,omitempty"`
	Code       string          `json:"code"` // tool.schema
	Text       string          `json:"text"`
}

// Catalogue is safe to use from many goroutines.
type Catalogue struct {
	o       Options
	ctx     context.Context
	cancel  context.CancelFunc
	sources map[string]*source

	watching map[int]func() // under mu
	watches  int

	mu       sync.RWMutex
	entries  []*Entry // sorted by wire name
	byName   map[string]*Entry
	index    *index
	problems []Problem
	version  int
}

// source is what is known of one upstream's tools.
type source struct {
	list    Source
	mu      sync.Mutex
	tools   []call.Tool
	problem *Problem
	fresh   bool
	begun   time.Time     // when it was last asked
	failed  time.Time     // when it was last asked in vain
	loading chan struct{} // closed when the load under way is over; nil: none is
}

// New makes a catalogue. No source is asked before somebody wants to know.
func New(o Options) *Catalogue {
	for d, otherwise := range map[*time.Duration]time.Duration{&o.Load: time.Minute, &o.Wait: 10 * time.Second, &o.Retry: 15 * time.Second} {
		if *d == 0 {
			*d = otherwise
		}
	}
	c := &Catalogue{o: o, sources: map[string]*source{}, watching: map[int]func(){}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for name, list := range o.Sources {
		c.sources[name] = &source{list: list}
	}
	c.Rebuild()
	return c
}

// Close ends the loads that are under way.
func (c *Catalogue) Close() { c.cancel() }

// List returns every visible tool, sorted by wire name, once all sources were asked or Wait is over.
func (c *Catalogue) List(ctx context.Context) []*Entry {
	c.load(ctx, nil)
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries
}

// Lookup returns the visible tool of a wire name or a dotted one, asking at most its own source.
func (c *Catalogue) Lookup(ctx context.Context, name string) (*Entry, bool) {
	for server, s := range c.sources {
		if strings.HasPrefix(name, server+".") || strings.HasPrefix(name, server+"__") {
			c.load(ctx, s)
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.byName[name]
	return e, ok
}

// Visible reports whether a contract line speaks of the capability.
func (c *Catalogue) Visible(cap call.Capability) bool {
	return c.o.Visible != nil && c.o.Visible(cap)
}

// Check returns the faults of the arguments, none if the tool's schema allows them.
func (e *Entry) Check(a call.Args) []schema.Fault {
	values := a.Values()
	if values == nil {
		values = map[string]any{}
	}
	return e.check.Check(values)
}

// Problems returns what is missing from the list, and why.
func (c *Catalogue) Problems() []Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.problems
}

// Invalidate says that a server's tools may be others now. If they were ever wanted they are listed
// again, at most once a second however often the server says so.
func (c *Catalogue) Invalidate(server string) {
	s := c.sources[server]
	if s == nil {
		return
	}
	s.mu.Lock()
	wanted := !s.begun.IsZero()
	s.fresh = false
	s.mu.Unlock()
	if wanted {
		c.begin(server, s)
	}
}

// Version counts how often the list became another.
func (c *Catalogue) Version() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// load asks the sources that are not fresh (or the one given) and waits, but not longer than Wait.
func (c *Catalogue) load(ctx context.Context, only *source) {
	var waiting []chan struct{}
	for name, s := range c.sources {
		if only == nil || s == only {
			if done := c.begin(name, s); done != nil {
				waiting = append(waiting, done)
			}
		}
	}
	if len(waiting) == 0 {
		return
	}
	t := time.NewTimer(c.o.Wait)
	defer t.Stop()
	for _, done := range waiting {
		select {
		case <-done:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin starts a load unless the source is fresh, was asked in vain just now, or is being asked.
func (c *Catalogue) begin(name string, s *source) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loading != nil {
		return s.loading
	}
	if s.fresh || time.Since(s.failed) < c.o.Retry {
		return nil
	}
	done, pause := make(chan struct{}), time.Until(s.begun.Add(time.Second))
	s.loading, s.fresh, s.begun = done, true, time.Now().Add(max(0, pause)) // an Invalidate from now on asks again
	go func() {
		time.Sleep(pause)
		ctx, cancel := context.WithTimeout(c.ctx, c.o.Load)
		defer cancel()
		tools, err := s.list(ctx)
		s.mu.Lock()
		if err != nil {
			s.fresh, s.failed = false, time.Now()
			s.problem = &Problem{Server: name, Code: "server.unavailable", Text: err.Error()}
		} else {
			s.tools, s.problem, s.failed = tools, nil, time.Time{}
		}
		s.loading = nil
		stale := !s.fresh && s.failed.IsZero()
		s.mu.Unlock()
		c.Rebuild()
		close(done)
		if stale && c.ctx.Err() == nil {
			c.begin(name, s)
		}
	}()
	return done
}

// Watch has f called, from any goroutine, whenever the list has become another, until stop.
func (c *Catalogue) Watch(f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.watches
	c.watches++
	c.watching[n] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watching, n)
	}
}

// Rebuild makes the list anew from what is known, as when the contracts are others now.
func (c *Catalogue) Rebuild() {
	b := builder{o: &c.o, byWire: map[string][]*Entry{}}
	b.add(SearchTool(), "")
	for _, t := range c.o.Builtins {
		b.add(t, "")
	}
	for _, name := range sortedKeys(c.sources) {
		s := c.sources[name]
		s.mu.Lock()
		tools, problem := s.tools, s.problem
		s.mu.Unlock()
		if problem != nil {
			b.problems = append(b.problems, *problem)
		}
		for _, t := range tools {
			b.add(t, name)
		}
	}
	entries, byName := b.finish()
	ix := newIndex(entries)
	var tell []func()
	c.mu.Lock()
	if !same(c.entries, entries) {
		c.version++
		for _, f := range c.watching {
			tell = append(tell, f)
		}
	}
	c.entries, c.byName, c.problems, c.index = entries, byName, b.problems, ix
	c.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

func same(a, b []*Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Wire != b[i].Wire || a[i].Digest != b[i].Digest {
			return false
		}
	}
	return true
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// maxWire is the length of a tool name that model providers take.
const maxWire = 64

// A capability is made of what every host takes in a tool's name (MCP 2025-11-25 server/tools), and
// at most 200 characters of it.
var capability = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$`)

// Named reports whether s has the form of a capability's name.
func Named(s string) bool { return capability.MatchString(s) }

type builder struct {
	o        *Options
	byWire   map[string][]*Entry
	problems []Problem
}

func (b *builder) problem(t call.Tool, code, format string, a ...any) {
	b.problems = append(b.problems, Problem{Server: t.Server, Capability: t.Capability, Code: code, Text: fmt.Sprintf(format, a...)})
}

// add takes a tool from a server, or one of waldo's own where the server is empty.
func (b *builder) add(t call.Tool, server string) {
	t.Server = server
	name := string(t.Capability)
	if server != "" && !strings.HasPrefix(name, server+".") {
		b.problem(t, "tool.name", "the name does not begin with the server's") // nor may it pass for another's
		return
	}
	if !Named(name) {
		b.problem(t, "tool.name", "%.100q is not a name: letters, digits, '_', '-' and '.', at most 200", name)
		return
	}
	visible := b.o.Visible != nil && b.o.Visible(t.Capability)
	if !visible && (server != "" || t.Capability != SearchTools) {
		return // hidden: no contract line speaks of it
	}
	e, err := b.entry(t)
	if err != nil {
		b.problem(t, "tool.schema", "%v", err)
		return
	}
	b.byWire[t.Capability.Wire()] = append(b.byWire[t.Capability.Wire()], e)
}

// finish gives every tool a wire name of its own. Tools whose names would be the same on the wire,
// or too long, get a part of their digest in it, all of them: so none takes over another's name.
func (b *builder) finish() ([]*Entry, map[string]*Entry) {
	entries, byName := []*Entry{}, map[string]*Entry{}
	taken := map[string]bool{}
	for _, wire := range sortedKeys(b.byWire) {
		list := b.byWire[wire]
		for _, e := range list {
			e.Wire = wire
			if len(list) > 1 || len(wire) > maxWire {
				e.Wire = shorten(wire, e.Capability)
			}
			if taken[e.Wire] || byName[string(e.Capability)] != nil {
				b.problem(e.Tool, "tool.twice", "another tool has the same name")
				continue
			}
			taken[e.Wire] = true
			entries = append(entries, e)
			byName[e.Wire], byName[string(e.Capability)] = e, e
		}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Wire < entries[j].Wire })
	return entries, byName
}
