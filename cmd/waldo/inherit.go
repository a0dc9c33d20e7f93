package main

import (
	"maps"
	"reflect"
	"slices"
)

// inherit takes over running servers of the earlier application whose configuration is unchanged. Call it before h is
// in force.
func (h *application) inherit(was *application) {
	l := h.launcher()
	h.upstreams.Inherit(was.upstreams, func(name string, made []string) bool {
		if !sameServer(was, h, name) {
			return false
		}
		now, err := l.Made(h.cfg.Servers[name])
		return err == nil && !slices.ContainsFunc(made, func(m string) bool { return m == "" || m != now })
	})
}

// sameServer reports whether the configuration of a server is unchanged: its entry, its pins, the trusted programs
// and the operator's hosts. Servers at a URL, in a session's workspace or with an injected secret depend on more
// state, and restart.
func sameServer(was, next *application, name string) bool {
	a, b := was.cfg.Servers[name], next.cfg.Servers[name]
	injected := func(h *application) bool {
		for ref := range maps.Values(b.Secrets) {
			if h.cfg.Secrets[string(ref)].Inject != nil {
				return true
			}
		}
		return false
	}
	return a.Same(b) && b.URL == "" && (b.Placement == "" || b.Placement == "sandbox" || b.Placement == "outside") &&
		was.cfg.File == next.cfg.File && !injected(was) && !injected(next) &&
		reflect.DeepEqual(was.lock.Servers[name], next.lock.Servers[name]) && maps.Equal(was.programs, next.programs) &&
		reflect.DeepEqual(was.cfg.Addresses, next.cfg.Addresses)
}
