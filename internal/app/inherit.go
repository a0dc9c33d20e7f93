package app

import (
	"maps"
	"reflect"
	"slices"

	"waldo/internal/config"
)

// inherit takes over running servers of the earlier application whose configuration is unchanged. Call it before h is
// in force.
func (h *App) inherit(was *App) {
	l := h.launcher()
	h.Upstreams.Inherit(was.Upstreams, func(name string, made []string) bool {
		if !sameServer(was, h, name) {
			return false
		}
		now, err := l.Made(h.Config.Servers[name])
		return err == nil && !slices.ContainsFunc(made, func(m string) bool { return m == "" || m != now })
	})
}

// sameServer reports whether the configuration of a server is unchanged: its entry, its pins, the trusted programs
// and the operator's hosts. Servers at a URL, in a session's workspace or with an injected secret depend on more
// state, and restart.
func sameServer(was, next *App, name string) bool {
	a, b := was.Config.Servers[name], next.Config.Servers[name]
	injected := func(h *App) bool {
		for ref := range maps.Values(b.Secrets) {
			if h.Config.Secrets[string(ref)].Inject != nil {
				return true
			}
		}
		return false
	}
	return config.SameServer(a, b) && b.URL == "" && (b.Placement == "" || b.Placement == "sandbox" || b.Placement == "outside") &&
		was.Config.File == next.Config.File && !injected(was) && !injected(next) &&
		reflect.DeepEqual(was.Lock.Servers[name], next.Lock.Servers[name]) && maps.Equal(was.programs, next.programs) &&
		reflect.DeepEqual(was.Config.Addresses, next.Config.Addresses)
}
