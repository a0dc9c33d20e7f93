// Package catalog is the one list of the tools, prompts and resources that an agent can use: waldo's own and those of
// the upstreams. It gives each an unambiguous name and searches over them.
package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/frontend/runcode"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/jsonschema"
)

// Source lists the tools of one upstream, each under "server.tool".
type Source func(ctx context.Context) ([]call.Tool, error)

// Options say what the list is made of. The zero Options make an empty one.
type Options struct {
	Builtins  []call.Tool
	Sources   map[string]Source      // by server
	Offers    map[string]OfferSource // by server
	Plain     string                 // the server whose tools have no prefix; empty: none
	Contracts Contracts              // nil: nothing is visible
	Texts     Texts                  // nil: no text is shown, and all of a schema
	Pins      Pins                   // nil: nothing is held or kept
	Over      func() bool            // whether all viewers see empty lists by now; nil: never
	Load      time.Duration          // how long one source may take; 0: 60 s
	Wait      time.Duration          // how long a reader waits for slow sources; 0: 10 s
	Retry     time.Duration          // before a source that failed is asked again; 0: 15 s
}

// Contracts is what contracts make of tools.
type Contracts interface {
	// Visible reports whether a contract line speaks of a capability.
	Visible(c call.Capability) bool
	// Usable reports whether a call of it may be anything but denied.
	Usable(c call.Capability, v Viewer) bool
	// Names returns the capabilities under which contracts cover a server's tool.
	Names(server, tool string) []call.Capability
	// Of returns the contract of a capability; without one, the zero contract.
	Of(c call.Capability) contract.Contract
}

// Texts makes safe to show what servers define.
type Texts interface {
	Clean(text string) string
	// Hide takes out of a tool's schemas what a model may not see.
	Hide(t call.Tool) (call.Tool, error)
	// Epoch is another whenever Clean or Hide may give another result.
	Epoch() any
}

// Pins says which definitions were accepted.
type Pins interface {
	// Held returns the tools that a server lists and agents cannot use.
	Held(server string) []Problem
	// Kept returns accepted tools. They are listed until the server has listed its own.
	Kept(server string) []call.Tool
	// Missing takes note of another set of n tools that are omitted for one reason.
	Missing(first Problem, n int)
}

// nothing stands in for what Options leave out.
type nothing struct{}

func (nothing) Visible(call.Capability) bool           { return false }
func (nothing) Usable(call.Capability, Viewer) bool    { return true }
func (nothing) Of(call.Capability) contract.Contract   { return contract.Contract{} }
func (nothing) Names(string, string) []call.Capability { return nil }
func (nothing) Clean(text string) string               { return "" }
func (nothing) Hide(t call.Tool) (call.Tool, error)    { return t, nil }
func (nothing) Epoch() any                             { return nil }
func (nothing) Held(string) []Problem                  { return nil }
func (nothing) Kept(string) []call.Tool                { return nil }
func (nothing) Missing(Problem, int)                   {}

// Entry is one tool as it is shown. It does not change once it is in a list.
type Entry struct {
	call.Tool // with cleaned text and a schema that every client takes
	Wire      string
	check     *jsonschema.Schema
	terms     map[string]float32
}

// The codes of problems with a server: nothing of it is in the list, or none of its prompts and resources, or
// not yet.
const (
	Unavailable       = "server.unavailable"
	Slow              = "server.slow"
	OffersUnavailable = "offers.unavailable"
	OffersSlow        = "offers.slow"
)

// Problem is a tool, prompt, template or server that is not in the list, and why.
type Problem struct {
	Server     string          `json:"server"`
	Capability call.Capability `json:"capability,omitempty"`
	Item       string          `json:"item,omitempty"` // of a prompt, a resource or a template, by the server's own name
	Code       string          `json:"code"`           // tool.schema
	Text       string          `json:"text"`
}

// Catalogue is safe to use from many goroutines.
type Catalogue struct {
	o      Options
	cancel context.CancelFunc
	tools  *sourceLoaders[[]call.Tool]
	offers *sourceLoaders[Offer]

	watching map[int]func() // under mu
	watches  int

	asked    atomic.Int64 // how often Rebuild was called
	building sync.Mutex   // held by Rebuild, so that no older list takes the place of a newer one
	built    int64        // the calls of Rebuild that the last list answers; under building
	made     cache        // of the last list; under building
	keeping  sync.Once

	mu       sync.RWMutex
	entries  []*Entry // sorted by wire name
	byName   map[string]*Entry
	index    *index
	shown    shown
	sights   map[Viewer]*viewCache // of these lists
	problems []Problem
	held     map[string][]Problem // by server: tools that the last list omitted
	epoch    any                  // of the last list
	version  Versions
}

// Versions count how often each list became another, from 1.
type Versions struct{ Tools, Prompts, Resources int }

// New makes a catalogue. No source is asked before somebody wants to know.
func New(o Options) *Catalogue {
	for d, otherwise := range map[*time.Duration]time.Duration{
		&o.Load: time.Minute, &o.Wait: 10 * time.Second, &o.Retry: 15 * time.Second,
	} {
		if *d == 0 {
			*d = otherwise
		}
	}
	if o.Contracts == nil {
		o.Contracts = nothing{}
	}
	if o.Texts == nil {
		o.Texts = nothing{}
	}
	if o.Pins == nil {
		o.Pins = nothing{}
	}
	c := &Catalogue{o: o, watching: map[int]func(){}, version: Versions{1, 1, 1}}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.tools = newSourceLoaders(ctx, o, Unavailable, o.Sources, sameTools, c.loaded)
	c.offers = newSourceLoaders(ctx, o, OffersUnavailable, o.Offers, sameOffer, c.loaded)
	c.Rebuild()
	return c
}

// Close ends the loads that are under way.
func (c *Catalogue) Close() { c.cancel() }

// Lookup returns the visible tool of a wire name or a dotted one, and loads at most its own source. It also finds
// tools that a viewer may not use: the pipeline denies and records such a call.
func (c *Catalogue) Lookup(ctx context.Context, name string) (*Entry, bool) {
	cap, waited := call.Capability(strings.ReplaceAll(name, "__", ".")), ""
	for server := range c.tools.by {
		if server == c.o.Plain || strings.HasPrefix(name, server+".") || strings.HasPrefix(name, server+"__") {
			c.tools.await(ctx, server, cap)
			waited = server
		}
	}
	if e, ok := c.named(name); ok {
		return e, true
	}
	if server := c.o.Contracts.Of(cap).Server; server != waited && c.tools.by[server] != nil {
		c.tools.await(ctx, server, cap)
	}
	return c.named(name)
}

func (c *Catalogue) named(name string) (*Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.byName[name]
	return e, ok
}

// Visible reports whether a contract line speaks of the capability.
func (c *Catalogue) Visible(cap call.Capability) bool {
	return c.o.Contracts.Visible(cap)
}

// Check returns the faults of the arguments, none if the tool's schema allows them. A name that differs from another, or
// from a declared one, by case alone is a fault: to a server that ignores case it is the argument that a contract judged.
func (e *Entry) Check(a call.Args) []jsonschema.Fault {
	values := a.Values()
	if values == nil {
		values = map[string]any{}
	}
	return e.check.Check(values)
}

// Problems returns what is missing from the lists that were asked for, and why.
func (c *Catalogue) Problems() []Problem {
	c.mu.RLock()
	problems := slices.Clip(c.problems)
	c.mu.RUnlock()
	for _, server := range slices.Sorted(maps.Keys(c.tools.by)) {
		if c.tools.by[server].awaited() {
			problems = append(problems, Problem{Server: server, Code: Slow, Text: "it has not listed its tools yet"})
		} else if f := c.offers.by[server]; f != nil && f.awaited() {
			problems = append(problems, Problem{Server: server, Code: OffersSlow, Text: "they are not listed yet"})
		}
	}
	return problems
}

// Why returns the reason code for which a tool that a viewer may use is missing from the list. One such reason is
// that its server has not been listed. It returns "" if the reason is unknown.
func (c *Catalogue) Why(v Viewer, cap call.Capability) string {
	if !c.o.Contracts.Usable(cap, v) {
		return ""
	}
	problems := c.Problems()
	own := slices.IndexFunc(problems, func(p Problem) bool { return p.Capability == cap && p.Item == "" })
	if own >= 0 {
		return problems[own].Code
	}
	for _, p := range problems {
		if (p.Code == Unavailable || p.Code == Slow) && c.of(cap, p.Server) {
			return p.Code
		}
	}
	return ""
}

// of reports whether a capability is a server's, by its name or by contract.
func (c *Catalogue) of(cap call.Capability, server string) bool {
	return server == c.o.Plain || strings.HasPrefix(string(cap), server+".") || c.o.Contracts.Of(cap).Server == server
}

// Invalidate says that a server's tools may be others now. If they were ever wanted they are listed
// again, at most once a second however often the server says so. Watchers hear of a list that differs.
func (c *Catalogue) Invalidate(server string) { c.tools.invalidate(server) }

// InvalidateOffer says the same of its prompts and resources.
func (c *Catalogue) InvalidateOffer(server string) { c.offers.invalidate(server) }

// keep puts the tools that were accepted into the lists that no server has answered for yet.
func (c *Catalogue) keep() {
	for server, f := range c.tools.by {
		if have := c.o.Pins.Kept(server); len(have) > 0 {
			f.keep(have)
		}
	}
	c.Rebuild()
}

// loaded takes note that a server was asked. A list that is the same as before costs no more than the comparison.
func (c *Catalogue) loaded(server string, same bool) {
	if same {
		held := c.o.Pins.Held(server)
		c.mu.RLock()
		same = slices.Equal(held, c.held[server]) && c.epoch == c.o.Texts.Epoch()
		c.mu.RUnlock()
	}
	if !same {
		c.Rebuild()
	}
}

// Versions count how often the lists became others.
func (c *Catalogue) Versions() Versions {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
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

// Rebuild builds the list again from the loaded sources, as after a change of contracts. Callers that wait at the
// same time share one rebuild.
func (c *Catalogue) Rebuild() {
	n := c.asked.Add(1)
	for _, f := range c.rebuild(n) {
		f()
	}
}

// rebuild carries out the n-th Rebuild. It returns the functions to call if the list changed.
func (c *Catalogue) rebuild(n int64) (tell []func()) {
	c.building.Lock()
	defer c.building.Unlock()
	if c.built >= n {
		return nil
	}
	c.built = c.asked.Load()
	b := builder{
		o: &c.o, byWire: map[string][]*made{}, was: c.made, now: cache{}, kept: map[string][]Problem{}, epoch: c.o.Texts.Epoch(),
	}
	b.add(SearchTool(), "")
	for _, t := range c.o.Builtins {
		b.add(t, "")
	}
	for _, name := range slices.Sorted(maps.Keys(c.tools.by)) {
		for _, t := range b.within(name, c.tools.by[name].get(&b.problems)) {
			b.take(t, name)
		}
		b.held(name)
	}
	entries, byName := b.finish()
	c.made = b.now
	lists := b.offers(c.offers)
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.version
	if !same(c.entries, entries) {
		c.version.Tools++
	}
	if !sameItems(c.shown.prompts, lists.prompts) {
		c.version.Prompts++
	}
	if !sameItems(c.shown.resources, lists.resources) || !sameItems(c.shown.templates, lists.templates) {
		c.version.Resources++
	}
	if c.version != was {
		for _, f := range c.watching {
			tell = append(tell, f)
		}
	}
	before := kinds(c.problems)
	for kind, list := range kinds(b.problems) {
		if !slices.Equal(list, before[kind]) {
			tell = append(tell, func() { c.o.Pins.Missing(list[0], len(list)) })
		}
	}
	if c.index == nil || !slices.Equal(c.entries, entries) {
		c.index = &index{entries: entries}
	}
	c.entries, c.byName, c.problems, c.held, c.shown, c.epoch = entries, byName, b.problems, b.kept, lists, b.epoch
	c.sights = map[Viewer]*viewCache{}
	return tell
}

// kinds are the problems with tools, by server and code.
func kinds(all []Problem) map[[2]string][]Problem {
	out := map[[2]string][]Problem{}
	for _, p := range all {
		if p.Capability != "" {
			out[[2]string{p.Server, p.Code}] = append(out[[2]string{p.Server, p.Code}], p)
		}
	}
	return out
}

func same(a, b []*Entry) bool {
	return slices.EqualFunc(a, b, func(x, y *Entry) bool { return x.Wire == y.Wire && x.Digest == y.Digest })
}

// maxWire is the length of a tool name that model providers take.
const maxWire = 64

// A capability uses the characters that every host accepts in a tool's name (MCP 2025-11-25 server/tools), at most
// 200. Named reports whether s has the form of a capability's name.
func Named(s string) bool { return call.Capability(s).Named() }

type builder struct {
	o        *Options
	epoch    any
	was, now cache // caches of the last build and of this one
	byWire   map[string][]*made
	kept     map[string][]Problem // by server, as Held returned them
	problems []Problem
	weight   int // of the definitions of all servers so far
}

func (b *builder) problem(t call.Tool, code, format string, a ...any) {
	b.problems = append(b.problems, Problem{
		Server: t.Server, Capability: t.Capability, Code: code, Text: fmt.Sprintf(format, a...),
	})
}

// take takes a tool from a server, under each name that contracts have for it.
func (b *builder) take(t call.Tool, server string) {
	t.Server = server
	name, own := strings.CutPrefix(string(t.Capability), server+".")
	if !own {
		b.problem(t, "tool.name", "the name does not begin with the server's") // nor may it pass for another's
		return
	}
	for _, t.Capability = range b.o.Contracts.Names(server, name) {
		b.add(t, server)
	}
}

// held adds the tools that a server lists and agents cannot use, if a contract covers them.
func (b *builder) held(server string) {
	b.kept[server] = b.o.Pins.Held(server)
	for _, p := range b.kept[server] {
		names := []call.Capability{p.Capability}
		if tool, own := strings.CutPrefix(string(p.Capability), server+"."); own && p.Item == "" {
			names = b.o.Contracts.Names(server, tool)
		}
		for _, p.Capability = range names {
			if b.visible(p.Capability) || !Named(string(p.Capability)) && p.Item == "" { // no contract can speak of that
				b.problems = append(b.problems, p)
			}
		}
	}
}

// add enters a tool of a server, or one of waldo's own where the server is empty.
func (b *builder) add(t call.Tool, server string) {
	t.Server = server
	name := string(t.Capability)
	if !Named(name) {
		b.problem(t, "tool.name", "%.100q is not a name: letters, digits, '_', '-' and '.', at most 200", name)
		return
	}
	if server != "" && slices.Contains(contract.Own(), name) {
		b.problem(t, "tool.own", "the name is that of a tool of waldo's own")
		return
	}
	own := t.Capability == SearchTools || t.Capability == runcode.Name &&
		slices.ContainsFunc(runcode.Capabilities(), b.visible)
	if !b.visible(t.Capability) && (server != "" || !own) {
		return // hidden: no contract line speaks of it
	}
	e := b.make(t)
	if e.err != nil {
		b.problem(t, "tool.schema", "%v", e.err)
		return
	}
	wire := t.Capability.Wire()
	if short, own := strings.CutPrefix(name, server+"."); own && server == b.o.Plain {
		wire = call.Capability(short).Wire()
		if other, _, _ := strings.Cut(wire, "__"); b.o.Sources[other] != nil || slices.Contains(contract.Own(), wire) {
			wire = t.Capability.Wire() // it would look like another server's, or waldo's own
		}
	}
	b.byWire[wire] = append(b.byWire[wire], e)
}

// finish gives every tool a wire name of its own. Tools whose names would be the same on the wire,
// or too long, get a part of their digest in it, all of them: so none takes over another's name.
func (b *builder) finish() ([]*Entry, map[string]*Entry) {
	entries, byName := []*Entry{}, map[string]*Entry{}
	taken := map[string]bool{}
	for _, wire := range slices.Sorted(maps.Keys(b.byWire)) {
		list := b.byWire[wire]
		for _, m := range list {
			name := wire
			if len(list) > 1 || len(wire) > maxWire {
				name = shorten(wire, m.of.Capability)
			}
			e := m.named(name)
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
