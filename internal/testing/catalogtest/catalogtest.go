// Package catalogtest Holds what tests put into a catalogue.
package catalogtest

import (
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Rules are contracts of a test. Without a function every capability is visible, usable and under its own name.
type Rules struct {
	Seen    func(call.Capability) bool
	Allowed func(call.Capability, catalog.Viewer) bool
	Named   func(server, tool string) []call.Capability
	Under   func(call.Capability) contract.Contract
}

func (r Rules) Visible(c call.Capability) bool { return r.Seen == nil || r.Seen(c) }

func (r Rules) Usable(c call.Capability, v catalog.Viewer) bool {
	return r.Allowed == nil || r.Allowed(c, v)
}

func (r Rules) Names(server, tool string) []call.Capability {
	if r.Named == nil {
		return []call.Capability{call.Capability(server + "." + tool)}
	}
	return r.Named(server, tool)
}

func (r Rules) Of(c call.Capability) (k contract.Contract) {
	if r.Under == nil {
		return k
	}
	return r.Under(c)
}

// Words show texts and schemas of a test as they are, unless it changes the texts.
type Words struct {
	Cleaner func(string) string
	Era     func() any
}

func (w Words) Clean(s string) string {
	if w.Cleaner == nil || s == "" {
		return s
	}
	return w.Cleaner(s)
}

func (Words) Hide(t call.Tool) (call.Tool, error) { return t, nil }

func (w Words) Epoch() any {
	if w.Era == nil {
		return nil
	}
	return w.Era()
}

// Pins are the accepted definitions of a test.
type Pins struct {
	Holds  func(server string) []catalog.Problem
	Keeps  func(server string) []call.Tool
	Misses func(first catalog.Problem, n int)
}

func (p Pins) Held(server string) []catalog.Problem {
	if p.Holds == nil {
		return nil
	}
	return p.Holds(server)
}

func (p Pins) Kept(server string) []call.Tool {
	if p.Keeps == nil {
		return nil
	}
	return p.Keeps(server)
}

func (p Pins) Missing(first catalog.Problem, n int) {
	if p.Misses != nil {
		p.Misses(first, n)
	}
}
