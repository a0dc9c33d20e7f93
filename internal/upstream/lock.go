package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"waldo/internal/call"
	"waldo/internal/contract"
	"waldo/internal/install"
	"waldo/internal/wire"
)

// Lock is waldo.lock: what an operator has accepted of each server.
type Lock struct {
	Version int               `json:"version"` // 1
	Servers map[string]Locked `json:"servers"`
}

// Locked is one server as it was accepted.
type Locked struct {
	Command string `json:"command"` // digest of how it is started: command, environment, placement, secrets by name
	Name    string `json:"name"`    // as the server calls itself
	// Package is what the server's program was installed from; nil: it was there already.
	Package *install.Pin      `json:"package,omitempty"`
	Tools   map[string]string `json:"tools"` // the server's own name of a tool to the digest of its definition
	// Definitions are what the digests were made of, to show how another differs. They decide nothing.
	Definitions map[string]wire.Value `json:"definitions,omitempty"`
}

// Change is one difference between what was accepted and what a server shows.
type Change struct {
	Server string   `json:"server"`
	Tool   string   `json:"tool,omitempty"` // empty: the server itself
	Code   string   `json:"code"`           // lock.changed, lock.new, lock.gone, lock.server or lock.package
	Text   string   `json:"text"`
	Diff   []string `json:"diff,omitempty"` // with lock.changed and lock.package: see Diff
}

// ReadLock reads a lock. A file that is not there is an empty lock, which holds nobody to anything.
func ReadLock(file string) (*Lock, error) {
	l := &Lock{Version: 1, Servers: map[string]Locked{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := wire.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := v.Decode(l); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if l.Version != 1 {
		return nil, fmt.Errorf("%s: version %d of the lock is not known here; this waldo writes version 1", file, l.Version)
	}
	if l.Servers == nil {
		l.Servers = map[string]Locked{}
	}
	return l, nil
}

// Write replaces the file with the lock, whole or not at all.
func (l *Lock) Write(file string) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".waldo.lock-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// Compare returns how a server differs from what was accepted, sorted by tool; nothing for a server
// of which nothing was accepted.
func (l *Lock) Compare(server string, now Locked) []Change {
	if l == nil {
		return nil
	}
	was, ok := l.Servers[server]
	if !ok {
		return nil
	}
	var out []Change
	add := func(tool, code, text string) {
		out = append(out, Change{Server: server, Tool: tool, Code: code, Text: text})
	}
	if was.Command != now.Command {
		add("", "lock.server", "it is started in another way than was accepted")
	}
	if was.Name != now.Name {
		add("", "lock.server", fmt.Sprintf("it calls itself %.80q; %.80q was accepted", now.Name, was.Name))
	}
	for tool, digest := range now.Tools {
		switch accepted, known := was.Tools[tool]; {
		case !known:
			add(tool, "lock.new", "the tool was never accepted")
		case accepted != digest:
			add(tool, "lock.changed", "the definition is not the one that was accepted")
			if old := was.Definitions[tool]; !old.IsZero() && old.Digest() == accepted {
				out[len(out)-1].Diff = Diff(old, now.Definitions[tool])
			}
		}
	}
	for tool := range was.Tools {
		if _, still := now.Tools[tool]; !still {
			add(tool, "lock.gone", "the tool was accepted and is no longer there")
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Tool < out[j].Tool })
	return out
}

// Accept records a server as it is now.
func (l *Lock) Accept(server string, now Locked) { l.Servers[server] = now }

// Command returns the digest of how a server is started: what it runs, where, and with which
// environment and secrets, by name.
func Command(s contract.Server) string {
	how := map[string]any{"command": s.Command, "url": s.URL, "placement": s.Placement, "env": s.Env, "secrets": s.Secrets, "input": s.Input, "network": s.Network}
	if s.URL != "" {
		how["auth"] = s.Auth // by the names of its secrets
	}
	b, _ := json.Marshal(how)
	return wire.Digest(b) // maps of strings encode with their names sorted
}

// Quarantine is a tool that is kept from agents, and why.
type Quarantine struct {
	Capability call.Capability `json:"capability"`
	Code       string          `json:"code"` // lock.changed
	Text       string          `json:"text"`
}

// pins are the definitions of a server that were seen first, or accepted: a tool keeps the one it
// had, and one that has changed since is kept from agents.
type pins struct {
	first Locked // as first seen since waldo started, where no lock speaks of the server
	defs  []*definition
}

// take holds a new list against the lock, or against the first list where the lock is silent.
func (p *pins) take(s contract.Server, name string, defs []*definition, lock *Lock) {
	now := locked(s, name, defs)
	if p.first.Tools == nil {
		p.first = now
	}
	against, locked := lock, false
	if lock != nil {
		_, locked = lock.Servers[s.Name]
	}
	if !locked {
		against = &Lock{Servers: map[string]Locked{s.Name: p.first}}
	}
	for _, c := range against.Compare(s.Name, now) {
		for _, d := range defs {
			if c.Tool == "" || c.Tool == d.name {
				d.quarantine(c.Code, c.Text)
			}
		}
	}
	p.defs = defs
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

func (p *pins) quarantine() []Quarantine {
	out := []Quarantine{}
	for _, d := range p.defs {
		if d.why != "" {
			out = append(out, Quarantine{d.tool.Capability, d.code, d.why})
		}
	}
	return out
}

// Seen lists a server's tools and returns it as it is now, for a lock to accept or to be compared with.
func (m *Manager) Seen(ctx context.Context, name string) (Locked, error) {
	s := m.servers[name]
	if s == nil {
		return Locked{}, fmt.Errorf("no server is called %q", name)
	}
	ses, err := s.list(ctx)
	if err != nil {
		return Locked{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return locked(s.cfg, ses.name, s.pins.defs), nil
}

// locked is a server as it shows itself now.
func locked(s contract.Server, name string, defs []*definition) Locked {
	now := Locked{Command: Command(s), Name: name, Tools: map[string]string{}, Definitions: map[string]wire.Value{}}
	for _, d := range defs {
		now.Tools[d.name], now.Definitions[d.name] = d.tool.Digest, d.raw
	}
	return now
}
