package main

import (
	"maps"
	"reflect"
	"slices"
)

// inherit leaves running the servers of the application before that the new configuration would start just so. It must be
// called before h is in force.
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

// sameServer reports whether nothing of the configuration that a server depends on has changed: its entry, what is
// accepted of it, the programs that are trusted and the hosts of the operator's own. A server at a url, one in a
// session's workspace and one with an injected secret hold more than that, and are started anew.
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
