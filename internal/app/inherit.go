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
	l, far := h.launcher(), h.dialer()
	h.Upstreams.Inherit(was.Upstreams, func(name string, made []string) bool {
		if !sameServer(was, h, name) {
			return false
		}
		s := h.Config.Servers[name]
		now, err := "", error(nil)
		if s.URL != "" {
			now, err = far.Made(s)
		} else {
			now, err = l.Made(s)
		}
		return err == nil && !slices.ContainsFunc(made, func(m string) bool { return m == "" || m != now })
	})
}

// sameServer reports whether the configuration of a server is unchanged: its entry, its pins, the trusted programs,
// the injection of its secrets and the operator's hosts. Servers in a session's workspace depend on more state, and
// restart.
func sameServer(was, next *App, name string) bool {
	a, b := was.Config.Servers[name], next.Config.Servers[name]
	for ref := range maps.Values(b.Secrets) {
		if !reflect.DeepEqual(was.Config.Secrets[string(ref)].Inject, next.Config.Secrets[string(ref)].Inject) {
			return false
		}
	}
	return config.SameServer(a, b) && (b.Placement == "" || b.Placement == "sandbox" || b.Placement == "outside") &&
		was.Config.File == next.Config.File &&
		reflect.DeepEqual(was.Lock.Servers[name], next.Lock.Servers[name]) && maps.Equal(was.Config.Programs, next.Config.Programs) &&
		reflect.DeepEqual(was.Config.Addresses, next.Config.Addresses) &&
		slices.Equal(was.Config.Internal, next.Config.Internal)
}
