package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"waldo/internal/executor/upstream/diff"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/pkginstall"
	"waldo/internal/protocol/strictjson"
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
	Package *pkginstall.Pin   `json:"package,omitempty"`
	Tools   map[string]string `json:"tools"` // the server's own name of a tool to the digest of its definition
	// Definitions are what the digests were made of, to show how another differs. They decide nothing.
	Definitions map[string]strictjson.Value `json:"definitions,omitempty"`
	Prompts     Pins                        `json:"prompts,omitzero"`   // by name
	Templates   Pins                        `json:"templates,omitzero"` // of resources, by uriTemplate
}

// Pins are the definitions of one kind that were accepted: their digests, which decide, and what they
// were made of.
type Pins struct {
	Digests     map[string]string           `json:"digests"`
	Definitions map[string]strictjson.Value `json:"definitions"`
}

// IsZero reports whether nothing was accepted; encoding/json asks.
func (p Pins) IsZero() bool { return len(p.Digests) == 0 }

// Change is one difference between what was accepted and what a server shows.
type Change struct {
	Server   string   `json:"server"`
	Tool     string   `json:"tool,omitempty"` // at most one of these three; none: the server itself
	Prompt   string   `json:"prompt,omitempty"`
	Template string   `json:"template,omitempty"` // of resources
	Code     string   `json:"code"`               // lock.changed, lock.new, lock.gone, lock.server or lock.package
	Text     string   `json:"text"`
	Diff     []string `json:"diff,omitempty"` // with lock.changed and lock.package: see diff.Lines
}

// kind says what a change is of, and names it: a tool, prompt or template; otherwise of the server itself.
func (c Change) kind() (kind, name string) {
	switch {
	case c.Tool != "":
		return tools, c.Tool
	case c.Prompt != "":
		return prompts, c.Prompt
	case c.Template != "":
		return templates, c.Template
	}
	return "", ""
}

// The kinds of definitions that are pinned.
const (
	tools     = "tool"
	prompts   = "prompt"
	templates = "template"
)

// String names what a change is of, as in drive.search, or prompt drive.greet.
func (c Change) String() string {
	switch kind, name := c.kind(); kind {
	case "":
		return c.Server
	case tools:
		return c.Server + "." + name
	default:
		return kind + " " + c.Server + "." + name
	}
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
	v, err := strictjson.Parse(b)
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

// Compare returns how a server differs from what was accepted: the server itself, then its tools, prompts
// and templates, each sorted by name; nothing for a server of which nothing was accepted.
func (l *Lock) Compare(server string, now Locked) []Change {
	if l == nil {
		return nil
	}
	was, ok := l.Servers[server]
	if !ok {
		return nil
	}
	var out []Change
	if was.Command != now.Command {
		out = append(out, Change{Server: server, Code: "lock.server", Text: "its entry in the configuration changed since it was locked"})
	}
	if was.Name != now.Name {
		out = append(out, Change{Server: server, Code: "lock.server", Text: fmt.Sprintf("it calls itself %.80q; waldo.lock has %.80q", now.Name, was.Name)})
	}
	for _, c := range compare(tools, Pins{was.Tools, was.Definitions}, Pins{now.Tools, now.Definitions}) {
		c.Server = server
		out = append(out, c)
	}
	for _, c := range compare(prompts, was.Prompts, now.Prompts) {
		c.Server, c.Prompt, c.Tool = server, c.Tool, ""
		out = append(out, c)
	}
	for _, c := range compare(templates, was.Templates, now.Templates) {
		c.Server, c.Template, c.Tool = server, c.Tool, ""
		out = append(out, c)
	}
	return out
}

// compare returns how the definitions of one kind differ from those that were accepted, sorted by name,
// which stands in Tool.
func compare(kind string, was, now Pins) (out []Change) {
	for name, digest := range now.Digests {
		switch accepted, known := was.Digests[name]; {
		case !known:
			out = append(out, Change{Tool: name, Code: "lock.new", Text: "this " + kind + " is not in waldo.lock"})
		case accepted != digest:
			c := Change{Tool: name, Code: "lock.changed", Text: "the definition changed since it was locked"}
			if old := was.Definitions[name]; !old.IsZero() && old.Digest() == accepted {
				c.Diff = diff.Lines(old, now.Definitions[name])
			}
			out = append(out, c)
		}
	}
	for name := range was.Digests {
		if _, still := now.Digests[name]; !still {
			out = append(out, Change{Tool: name, Code: "lock.gone", Text: "this " + kind + " is in waldo.lock, and the server has it no longer"})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Tool < out[j].Tool })
	return out
}

// Annotations returns what a server said of its tool when the operator accepted it; false where the lock
// does not have the tool, or not the definition that its digest was made of.
func (l *Lock) Annotations(server, tool string) (strictjson.Value, bool) {
	was := l.Servers[server]
	def := was.Definitions[tool]
	if def.IsZero() || def.Digest() != was.Tools[tool] {
		return strictjson.Value{}, false
	}
	m, _ := def.Members()
	return m["annotations"], true
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
	return strictjson.Digest(b) // maps of strings encode with their names sorted
}

// Quarantine is a tool, prompt or template that is kept from agents, and why.
type Quarantine struct {
	Capability call.Capability `json:"capability"`
	Name       string          `json:"name,omitempty"` // of a prompt or a template
	Code       string          `json:"code"`           // lock.changed
	Text       string          `json:"text"`
}

// pins are the definitions of a server that were seen first, or accepted: a tool keeps the one it
// had, and one that has changed since is kept from agents. So are prompts and templates of resources.
type pins struct {
	first              Locked // as first seen since waldo started, where no lock speaks of the server
	defs               []*definition
	offered            bool // the two below were listed
	prompts, templates []*definition
}

// take holds a new list of tools against the lock, or against the first list where the lock is silent.
func (p *pins) take(s contract.Server, name string, defs []*definition, lock *Lock) {
	now := Locked{Command: Command(s), Name: name}
	now.pin(defs)
	if p.first.Tools == nil {
		p.first.Command, p.first.Name, p.first.Tools, p.first.Definitions = now.Command, name, now.Tools, now.Definitions
	}
	p.defs = defs
	p.hold(s.Name, now, lock, tools, defs)
}

// takeOffers does the same with lists of prompts and templates. It reports whether the server itself is
// the one that was accepted.
func (p *pins) takeOffers(s contract.Server, name string, offers, templs []*definition, lock *Lock) (same bool) {
	now := Locked{Command: Command(s), Name: name, Prompts: pinned(offers), Templates: pinned(templs)}
	if !p.offered {
		p.first.Command, p.first.Name, p.first.Prompts, p.first.Templates = now.Command, name, now.Prompts, now.Templates
	}
	p.offered, p.prompts, p.templates = true, offers, templs
	p.hold(s.Name, now, lock, prompts, offers)
	return p.hold(s.Name, now, lock, templates, templs)
}

// hold puts into quarantine what is not as it was accepted or seen first, all of it where the server
// itself is not.
func (p *pins) hold(server string, now Locked, lock *Lock, kind string, defs []*definition) (same bool) {
	locked := false
	if lock != nil {
		_, locked = lock.Servers[server]
	}
	if !locked {
		lock = &Lock{Servers: map[string]Locked{server: p.first}}
	}
	same = true
	for _, c := range lock.Compare(server, now) {
		of, name := c.kind()
		same = same && of != ""
		for _, d := range defs {
			if of == "" || of == kind && name == d.name {
				d.quarantine(c.Code, c.Text)
			}
		}
	}
	return same
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
func (m *Manager) Seen(ctx context.Context, name string) (Locked, error) {
	s := m.servers[name]
	if s == nil {
		return Locked{}, fmt.Errorf("no server is called %q", name)
	}
	ses, err := s.list(ctx)
	if err == nil {
		_, err = s.offer(ctx, false)
	}
	if err != nil {
		return Locked{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Locked{Command: Command(s.cfg), Name: ses.name, Prompts: pinned(s.pins.prompts), Templates: pinned(s.pins.templates)}
	now.pin(s.pins.defs)
	return now, nil
}

func (l *Locked) pin(defs []*definition) {
	p := pinned(defs)
	l.Tools, l.Definitions = p.Digests, p.Definitions
}

func pinned(defs []*definition) Pins {
	p := Pins{map[string]string{}, map[string]strictjson.Value{}}
	for _, d := range defs {
		p.Digests[d.name], p.Definitions[d.name] = d.tool.Digest, d.raw
	}
	return p
}
