package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// Quarantine is a tool, prompt or template that is hidden from agents, and why.
type Quarantine struct {
	Capability call.Capability `json:"capability"`
	Name       string          `json:"name,omitempty"` // of a prompt or a template
	Code       string          `json:"code"`           // lock.changed
	Text       string          `json:"text"`
}

// pins are the definitions of a server that were seen first, or accepted. A tool whose definition changed since is
// hidden from agents. The same applies to prompts and resource templates.
type pins struct {
	first              lockfile.Locked // as first seen since waldo started, where no lock speaks of the server
	defs               []*definition
	offered            bool // the two below were listed
	prompts, templates []*definition
}

// take holds a new list of tools against the lock, or against the first list where the lock is silent.
func (p *pins) take(s contract.Server, name string, defs []*definition, lock *lockfile.Lock) {
	now := lockfile.Locked{Command: lockfile.Command(s), Name: name}
	pinTools(&now, defs)
	if p.first.Tools == nil {
		p.first.Command, p.first.Name, p.first.Tools, p.first.Definitions = now.Command, name, now.Tools, now.Definitions
	}
	p.defs = defs
	p.hold(s.Name, now, lock, lockfile.Tools, defs)
}

// takeOffers does the same with lists of prompts and templates. It reports whether the server itself is
// the one that was accepted.
func (p *pins) takeOffers(s contract.Server, name string, offers, templs []*definition, lock *lockfile.Lock) (same bool) {
	now := lockfile.Locked{Command: lockfile.Command(s), Name: name, Prompts: pinned(offers), Templates: pinned(templs)}
	if !p.offered {
		p.first.Command, p.first.Name, p.first.Prompts, p.first.Templates = now.Command, name, now.Prompts, now.Templates
	}
	p.offered, p.prompts, p.templates = true, offers, templs
	p.hold(s.Name, now, lock, lockfile.Prompts, offers)
	return p.hold(s.Name, now, lock, lockfile.Templates, templs)
}

// hold puts into quarantine what is not as it was accepted or seen first, all of it where the server
// itself is not.
func (p *pins) hold(server string, now lockfile.Locked, lock *lockfile.Lock, kind string, defs []*definition) (same bool) {
	locked := false
	if lock != nil {
		_, locked = lock.Servers[server]
	}
	if !locked {
		lock = &lockfile.Lock{Servers: map[string]lockfile.Locked{server: p.first}}
	}
	same = true
	for _, c := range lock.Compare(server, now) {
		of, name := c.Kind()
		same = same && of != ""
		for _, d := range defs {
			if of == "" || of == kind && name == d.name {
				d.quarantine(c.Code, c.Text)
			}
		}
	}
	return same
}

// Accepted returns the tools of one server as waldo.lock has them, under the same rules as those that a server lists.
// It starts no server. A definition that its digest was not made of is left out, and all of a server that is
// configured otherwise now.
func (m *Manager) Accepted(name string) []call.Tool {
	s := m.servers[name]
	if s == nil || m.lock.Load() == nil {
		return nil
	}
	was := m.lock.Load().Servers[name]
	var list []strictjson.Value
	for _, tool := range slices.Sorted(maps.Keys(was.Tools)) {
		if def := was.Definitions[tool]; !def.IsZero() {
			list = append(list, def)
		}
	}
	var p pins
	p.take(s.cfg, was.Name, s.definitions(list), m.lock.Load())
	return p.good()
}

// Relock replaces the lock. Each server, and those of single sessions, is listed again before its next call.
func (m *Manager) Relock(l *lockfile.Lock) {
	m.lock.Store(l)
	for _, s := range m.servers {
		s.m.lock.Store(l) // an inherited server lists against the lock of the manager that made it
		s.mu.Lock()
		all := append(slices.Collect(maps.Values(s.children)), s)
		s.mu.Unlock()
		for _, c := range all {
			c.mu.Lock()
			c.pins.defs, c.pins.offered = nil, false
			c.mu.Unlock()
		}
	}
}

// Appeared returns the tools that a server lists and that were never accepted, by its own names for them.
func (m *Manager) Appeared(name string) map[string]strictjson.Value {
	out := map[string]strictjson.Value{}
	s := m.servers[name]
	if s == nil {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.pins.defs {
		if d.code == "lock.new" {
			out[d.name] = d.raw
		}
	}
	return out
}

func (p *pins) good() []call.Tool {
	var out []call.Tool
	for _, d := range p.defs {
		if d.why == "" {
			out = append(out, d.tool)
		}
	}
	return out
}

// sound returns the definitions that are not in quarantine, as they came.
func sound(defs []*definition) (out []strictjson.Value) {
	for _, d := range defs {
		if d.why == "" {
			out = append(out, d.raw)
		}
	}
	return out
}

func (p *pins) quarantine() []Quarantine {
	out := []Quarantine{}
	for _, d := range slices.Concat(p.defs, p.prompts, p.templates) {
		if d.why == "" {
			continue
		}
		q := Quarantine{Capability: d.tool.Capability, Code: d.code, Text: d.why}
		if d.offer {
			q.Name = d.name
		}
		out = append(out, q)
	}
	return out
}

// Seen lists a server's tools, prompts and templates and returns it as it is now, for a lock to accept or
// to be compared with.
func (m *Manager) Seen(ctx context.Context, name string) (lockfile.Locked, error) {
	s := m.servers[name]
	if s == nil {
		return lockfile.Locked{}, fmt.Errorf("no server is called %q", name)
	}
	ses, err := s.list(ctx)
	if err == nil {
		_, err = s.offer(ctx, false)
	}
	if err != nil {
		return lockfile.Locked{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := lockfile.Locked{Command: lockfile.Command(s.cfg), Name: ses.name, Prompts: pinned(s.pins.prompts), Templates: pinned(s.pins.templates)}
	pinTools(&now, s.pins.defs)
	return now, nil
}

func pinTools(l *lockfile.Locked, defs []*definition) {
	p := pinned(defs)
	l.Tools, l.Definitions = p.Digests, p.Definitions
}

func pinned(defs []*definition) lockfile.Pins {
	p := lockfile.Pins{Digests: map[string]string{}, Definitions: map[string]strictjson.Value{}}
	for _, d := range defs {
		p.Digests[d.name], p.Definitions[d.name] = d.tool.Digest, d.raw
	}
	return p
}
