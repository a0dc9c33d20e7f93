package catalog

import (
	"context"
	"slices"
	"strings"
	"sync"

	"waldo/internal/frontend/runcode"
	"waldo/internal/model/call"
)

// Viewer is who looks at the list, and through which channel.
type Viewer struct {
	Principal call.Principal
	Channel   string // as in call.Call
}

// viewCache is the part of a list that one viewer may use.
type viewCache struct {
	once    sync.Once
	entries []*Entry
	hidden  map[call.Capability]bool // nil: none
	index   *index
	shown   shown
}

// maxSights bounds the cached views. A view that is built again costs one decision for each tool.
const maxSights = 200

// viewCache returns what a viewer sees of the list as it is now.
func (c *Catalogue) sight(v Viewer) *viewCache {
	if c.o.Over != nil && c.o.Over() {
		return &viewCache{}
	}
	c.mu.RLock()
	s := c.sights[v]
	c.mu.RUnlock()
	if s == nil {
		c.mu.Lock()
		if s = c.sights[v]; s == nil {
			if len(c.sights) >= maxSights {
				clear(c.sights)
			}
			s = &viewCache{entries: c.entries, index: c.index, shown: c.shown}
			c.sights[v] = s
		}
		c.mu.Unlock()
	}
	s.once.Do(func() {
		s.narrow(func(cap call.Capability) bool { return c.o.Contracts.Usable(cap, v) })
	})
	return s
}

// narrow leaves out what may not be used. The lists of the catalogue are shared and stay as they are.
func (s *viewCache) narrow(usable func(cap call.Capability) bool) {
	all := s.entries
	for i, e := range all {
		if e.Server == "" && e.Capability == SearchTools || usable(e.Capability) ||
			e.Server == "" && e.Capability == runcode.Name && slices.ContainsFunc(runcode.Capabilities(), usable) {
			if s.hidden != nil {
				s.entries = append(s.entries, e)
			}
			continue
		}
		if s.hidden == nil {
			s.hidden, s.entries = map[call.Capability]bool{}, append([]*Entry{}, all[:i]...)
		}
		s.hidden[e.Capability] = true
	}
	s.shown.prompts = keep(s.shown.prompts, GetPrompt, usable)
	s.shown.resources = keep(s.shown.resources, ReadResource, usable)
	s.shown.templates = keep(s.shown.templates, ReadResource, usable)
}

// keep returns the items of those servers whose method may be used.
func keep(list []*Item, method string, usable func(cap call.Capability) bool) []*Item {
	known := map[string]bool{}
	var out []*Item
	for _, i := range list {
		may, asked := known[i.Server]
		if !asked {
			may = usable(Of(i.Server, method))
			known[i.Server] = may
		}
		if may {
			out = append(out, i)
		}
	}
	return out
}

// List returns the tools that a viewer may know of, sorted by wire name, once all sources were asked or
// Wait is over. It does not wait for a server whose accepted tools are known.
func (c *Catalogue) List(ctx context.Context, v Viewer) []*Entry {
	c.keeping.Do(c.keep)
	c.tools.load(ctx)
	return c.sight(v).entries
}

// Shows reports whether a viewer may know of a tool that Lookup found.
func (c *Catalogue) Shows(v Viewer, e *Entry) bool { return !c.sight(v).hidden[e.Capability] }

// maxQuery is how much of a query is looked at, in bytes: code in a sandbox can send megabytes of words.
const maxQuery = 4 << 10

// Search returns the tools that fit the words best, at most max of them (0: DefaultHits). A query that is the whole
// name of a tool returns it alone. No words return the first tools of the list. Equal ranks are in the order of the
// names.
func (c *Catalogue) Search(ctx context.Context, v Viewer, query string, max int) []*Entry {
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	entries := c.List(ctx, v)
	if max <= 0 {
		max = DefaultHits
	}
	max = min(max, MaxHits)
	if len(words(query)) == 0 || len(entries) == 0 {
		return entries[:min(max, len(entries))]
	}
	named, ok := c.named(strings.TrimSpace(query))
	s := c.sight(v) // of that list, or of a newer one
	if ok && !s.hidden[named.Capability] {
		return []*Entry{named}
	}
	return s.index.search(query, max, s.hidden)
}

// Prompts returns every prompt that a viewer may know of.
func (c *Catalogue) Prompts(ctx context.Context, v Viewer) []*Item { return c.offered(ctx, v).prompts }

// Resources returns every resource that a viewer may know of.
func (c *Catalogue) Resources(ctx context.Context, v Viewer) []*Item {
	return c.offered(ctx, v).resources
}

// Templates returns every template of resources that a viewer may know of.
func (c *Catalogue) Templates(ctx context.Context, v Viewer) []*Item {
	return c.offered(ctx, v).templates
}

func (c *Catalogue) offered(ctx context.Context, v Viewer) shown {
	c.offers.load(ctx)
	return c.sight(v).shown
}
