package catalog

import (
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// rules are contracts of a test. Without a function every capability is visible, usable and under its own name.
type rules struct {
	seen    func(call.Capability) bool
	allowed func(call.Capability, Viewer) bool
	named   func(server, tool string) []call.Capability
	under   func(call.Capability) contract.Contract
}

func (r rules) Visible(c call.Capability) bool { return r.seen == nil || r.seen(c) }

func (r rules) Usable(c call.Capability, v Viewer) bool { return r.allowed == nil || r.allowed(c, v) }

func (r rules) Names(server, tool string) []call.Capability {
	if r.named == nil {
		return []call.Capability{call.Capability(server + "." + tool)}
	}
	return r.named(server, tool)
}

func (r rules) Of(c call.Capability) (k contract.Contract) {
	if r.under == nil {
		return k
	}
	return r.under(c)
}

// text shows texts and schemas of a test as they are, unless it changes the texts.
type text struct {
	cleaner func(string) string
	era     func() any
}

func (w text) Clean(s string) string {
	if w.cleaner == nil || s == "" {
		return s
	}
	return w.cleaner(s)
}

func (text) Hide(t call.Tool) (call.Tool, error) { return t, nil }

func (w text) Epoch() any {
	if w.era == nil {
		return nil
	}
	return w.era()
}

// pins are the accepted definitions of a test.
type pins struct {
	holds  func(server string) []Problem
	keeps  func(server string) []call.Tool
	misses func(first Problem, n int)
}

func (p pins) Held(server string) []Problem {
	if p.holds == nil {
		return nil
	}
	return p.holds(server)
}

func (p pins) Kept(server string) []call.Tool {
	if p.keeps == nil {
		return nil
	}
	return p.keeps(server)
}

func (p pins) Missing(first Problem, n int) {
	if p.misses != nil {
		p.misses(first, n)
	}
}
