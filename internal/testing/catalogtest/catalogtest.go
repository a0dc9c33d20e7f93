// Package catalogtest holds what tests put into a catalogue. Its own tests are among them, so nothing here names its types.
package catalogtest

import (
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Rules are contracts of a test. Without a function every capability is visible, usable and under its own name.
type Rules[Viewer any] struct {
	Seen    func(call.Capability) bool
	Allowed func(call.Capability, Viewer) bool
	Named   func(server, tool string) []call.Capability
	Under   func(call.Capability) contract.Contract
}

func (r Rules[Viewer]) Visible(c call.Capability) bool { return r.Seen == nil || r.Seen(c) }

func (r Rules[Viewer]) Usable(c call.Capability, v Viewer) bool {
	return r.Allowed == nil || r.Allowed(c, v)
}

func (r Rules[Viewer]) Names(server, tool string) []call.Capability {
	if r.Named == nil {
		return []call.Capability{call.Capability(server + "." + tool)}
	}
	return r.Named(server, tool)
}

func (r Rules[Viewer]) Of(c call.Capability) (k contract.Contract) {
	if r.Under == nil {
		return k
	}
	return r.Under(c)
}

// Words shows texts and schemas of a test as they are, unless it changes the texts.
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
type Pins[Problem any] struct {
	Holds  func(server string) []Problem
	Keeps  func(server string) []call.Tool
	Misses func(first Problem, n int)
}

func (p Pins[Problem]) Held(server string) []Problem {
	if p.Holds == nil {
		return nil
	}
	return p.Holds(server)
}

func (p Pins[Problem]) Kept(server string) []call.Tool {
	if p.Keeps == nil {
		return nil
	}
	return p.Keeps(server)
}

func (p Pins[Problem]) Missing(first Problem, n int) {
	if p.Misses != nil {
		p.Misses(first, n)
	}
}
