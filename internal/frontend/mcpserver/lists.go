package mcpserver

import "waldo/internal/frontend/mcpserver/catalog"

// lists are what the server shows: one catalogue, whose versions are counted on from those before it, so
// that a client's list of another catalogue is never taken for this one's.
type lists struct {
	*catalog.Catalogue
	before  catalog.Versions
	unwatch func()
}

// Versions count how often the lists became others, over all catalogues of the server.
func (l *lists) Versions() catalog.Versions {
	v := l.Catalogue.Versions()
	return catalog.Versions{
		Tools: l.before.Tools + v.Tools, Prompts: l.before.Prompts + v.Prompts, Resources: l.before.Resources + v.Resources,
	}
}

// lists returns what is shown now.
func (d *Server) lists() *lists { return d.shows.Load() }

// Replace installs another catalogue. Sessions stay open and get list-changed notifications. It must not be called
// concurrently.
func (d *Server) Replace(c *catalog.Catalogue) {
	next := &lists{Catalogue: c}
	old := d.lists()
	if old != nil {
		next.before = old.Versions()
		old.unwatch()
	}
	next.unwatch = c.Watch(d.wake)
	d.shows.Store(next)
	if old != nil {
		d.wake()
	}
}

// wake notifies every client of changed lists.
func (d *Server) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.sessions {
		s.wake()
	}
}
