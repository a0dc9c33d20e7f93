package session

import (
	"context"

	"waldo/internal/model/call"
)

// Ended is the code of the reason against the calls of a session that the operator has ended.
const Ended = call.SessionStopped

var stopped = call.Reason{Code: Ended, Text: "the operator has ended this session (waldo stop)"}

// Stop ends the open sessions that match: it cancels their running calls and refuses later ones. New sessions that
// match are ended from the start, until the next Stop. It returns the sessions that it ended.
func (m *Manager) Stop(meant func(Info) bool) (ended []Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = meant
	for _, e := range m.open {
		if e.info.Stopped || !meant(e.info) {
			continue
		}
		e.info.Stopped = true
		for cancel := range e.end {
			(*cancel)(&call.Stop{Why: stopped})
		}
		ended = append(ended, e.info)
	}
	return ended
}

// Kept reports whether a session that a principal opened now would be ended from the start.
func (m *Manager) Kept(p call.Principal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop != nil && m.stop(Info{Principal: p})
}

// Bind returns a context for a call of a session: it is cancelled, with a *call.Stop, when the session is
// stopped. done ends the binding.
func (m *Manager) Bind(ctx context.Context, s call.Session) (bound context.Context, done func()) {
	bound, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.open[s]
	if e == nil {
		return bound, func() { cancel(nil) }
	}
	if e.info.Stopped { // since Take
		cancel(&call.Stop{Why: stopped})
	}
	e.end[&cancel] = struct{}{}
	return bound, func() {
		m.mu.Lock()
		delete(e.end, &cancel)
		m.mu.Unlock()
		cancel(nil)
	}
}
