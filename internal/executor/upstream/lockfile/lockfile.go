// Package lockfile is waldo.lock: the definitions of servers that an operator has accepted, by their digests, and how
// others differ from them.
package lockfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"

	"waldo/internal/executor/upstream/diff"
	"waldo/internal/model/contract"
	"waldo/internal/pkginstall"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/safefile"
)

// Lock is waldo.lock: the definitions that an operator has accepted of each server.
type Lock struct {
	Version int               `json:"version"` // 1
	Servers map[string]Locked `json:"servers"`
}

// Locked is one server as it was accepted.
type Locked struct {
	Command string `json:"command"` // digest of how it is started: command, environment, placement, secrets by name
	Name    string `json:"name"`    // name that the server gives itself
	// Package pins the package that waldo installed for the server; nil: its program was there already.
	Package *pkginstall.Pin   `json:"package,omitempty"`
	Tools   map[string]string `json:"tools"` // the server's own name of a tool to the digest of its definition
	// Definitions are what the digests were made of, to show how another differs. They decide nothing.
	Definitions map[string]strictjson.Value `json:"definitions,omitempty"`
	Prompts     Pins                        `json:"prompts,omitzero"`   // by name
	Templates   Pins                        `json:"templates,omitzero"` // of resources, by uriTemplate
}

// Pins are the accepted definitions of one kind: their digests, which decide, and their sources.
type Pins struct {
	Digests     map[string]string           `json:"digests"`
	Definitions map[string]strictjson.Value `json:"definitions"`
}

// IsZero reports whether nothing was accepted; encoding/json asks.
func (p Pins) IsZero() bool { return len(p.Digests) == 0 }

// Change is one difference between the accepted definitions and the current ones.
type Change struct {
	Server   string   `json:"server"`
	Tool     string   `json:"tool,omitempty"` // at most one of these three; none: the server itself
	Prompt   string   `json:"prompt,omitempty"`
	Template string   `json:"template,omitempty"` // of resources
	Code     string   `json:"code"`               // lock.changed, lock.new, lock.gone, lock.server or lock.package
	Text     string   `json:"text"`
	Diff     []string `json:"diff,omitempty"` // with lock.changed and lock.package: see diff.Lines
}

// Kind says what a change is of, and names it: a tool, prompt or template; otherwise of the server itself.
func (c Change) Kind() (kind, name string) {
	switch {
	case c.Tool != "":
		return Tools, c.Tool
	case c.Prompt != "":
		return Prompts, c.Prompt
	case c.Template != "":
		return Templates, c.Template
	}
	return "", ""
}

// The kinds of definitions that are pinned.
const (
	Tools     = "tool"
	Prompts   = "prompt"
	Templates = "template"
)

// String names what a change is of, as in drive.search, or prompt drive.greet.
func (c Change) String() string {
	switch kind, name := c.Kind(); kind {
	case "":
		return c.Server
	case Tools:
		return c.Server + "." + name
	default:
		return kind + " " + c.Server + "." + name
	}
}

// Read reads a lock. A missing file is an empty lock, which pins nothing.
func Read(file string) (*Lock, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{Version: 1, Servers: map[string]Locked{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(file, b)
}

// Parse reads the content of a lock. Its errors name the file.
func Parse(file string, b []byte) (*Lock, error) {
	l := &Lock{Version: 1, Servers: map[string]Locked{}}
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
	b, err := l.Text()
	if err != nil {
		return err
	}
	return safefile.Replace(file, b, 0o644)
}

// Text returns the bytes that Write writes.
func (l *Lock) Text() ([]byte, error) {
	b, err := json.MarshalIndent(l, "", "  ")
	return append(b, '\n'), err
}

// Compare returns the differences between a server and its accepted state: the server itself, then its tools, prompts
// and templates, each sorted by name. It returns nothing for a server without an accepted state.
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
		out = append(out, Change{
			Server: server, Code: "lock.server", Text: "its entry in the configuration changed since it was locked",
		})
	}
	if was.Name != now.Name {
		out = append(out, Change{
			Server: server, Code: "lock.server",
			Text: fmt.Sprintf("it calls itself %.80q; waldo.lock has %.80q", now.Name, was.Name),
		})
	}
	for _, c := range compare(Tools, Pins{was.Tools, was.Definitions}, Pins{now.Tools, now.Definitions}) {
		c.Server = server
		out = append(out, c)
	}
	for _, c := range compare(Prompts, was.Prompts, now.Prompts) {
		c.Server, c.Prompt, c.Tool = server, c.Tool, ""
		out = append(out, c)
	}
	for _, c := range compare(Templates, was.Templates, now.Templates) {
		c.Server, c.Template, c.Tool = server, c.Tool, ""
		out = append(out, c)
	}
	return out
}

// compare returns the differences between the accepted definitions of one kind and the current ones, sorted by name
// (Tool).
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
			out = append(out, Change{
				Tool: name, Code: "lock.gone", Text: "this " + kind + " is in waldo.lock, and the server has it no longer",
			})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Tool < out[j].Tool })
	return out
}

// Annotations returns a server's annotations of its tool as the operator accepted them. It returns false if the lock
// lacks the tool, or the definition behind its digest.
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

// Command returns the digest of how a server is started: the command, the folder, and the names of its environment
// and secrets.
func Command(s contract.Server) string {
	how := map[string]any{
		"command": s.Command, "url": s.URL, "placement": s.Placement, "env": s.Env, "secrets": s.Secrets, "input": s.Input,
		"network": s.Network,
	}
	if s.URL != "" {
		how["auth"] = s.Auth // by the names of its secrets
	}
	if s.Peer {
		how["peer"] = s.CardKey
	}
	b, _ := json.Marshal(how)
	return strictjson.Digest(b) // maps of strings encode with their names sorted
}
