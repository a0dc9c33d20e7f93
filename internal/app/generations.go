package app

import (
	"sync/atomic"

	"waldo/internal/app/generation"
	"waldo/internal/frontend/mcpserver"
)

// lives are the applications that share one state: the current one, and earlier ones until their calls end.
type lives struct {
	server atomic.Pointer[mcpserver.Server] // the running server, or nil
	*generation.Generations[*App]
}

func newLives(first *App) *lives {
	return &lives{Generations: generation.New(first, (*App).retire)}
}

// inForce returns the current application, with the configuration in force.
func (l *lives) inForce() *App { return l.Now() }

// change makes next the current application.
func (l *lives) change(next *App) {
	l.Change(next, func() {
		if srv := l.server.Load(); srv != nil {
			srv.Replace(next.Catalogue)
		}
	})
}
