package upstream

import (
	"errors"
	"time"
)

// errFlooded is why a server was stopped that sent without pause.
var errFlooded = errors.New("it was stopped, since it sent messages without pause that answer nothing")

// unasked counts an unsolicited message, and stops a server that sends too many. The operator gets one warning, and
// the server's calls fail with the reason until its backoff ends.
func (ses *session) unasked(bytes int) {
	if !ses.meter.Full(bytes, time.Now()) || !ses.flooded.CompareAndSwap(false, true) {
		return
	}
	s := ses.s
	s.m.o.Log.Warn("server stopped", "server", s.cfg.Name, "error", errFlooded)
	s.mu.Lock()
	if s.session == ses {
		s.session, s.failed = nil, errFlooded
		s.crashed(false, 0)
	}
	s.mu.Unlock()
	go ses.kill() // the connection may be reading this very message
}
