package main

import (
	"sync/atomic"

	"waldo/internal/app/generation"
	"waldo/internal/frontend/mcpserver"
)

// lives are the sets of services that share one state: the one in force, and earlier ones until their calls are over.
type lives struct {
	server atomic.Pointer[mcpserver.Server] // the one that serves; nil: none does
	*generation.Generations[*application]
}

func newLives(first *application) *lives {
	return &lives{Generations: generation.New(first, (*application).retire)}
}

// inForce returns the application of the configuration in force.
func (l *lives) inForce() *application { return l.Now() }

// change puts another application in force.
func (l *lives) change(next *application) {
	l.Change(next, func() {
		if srv := l.server.Load(); srv != nil {
			srv.Replace(next.catalogue)
		}
	})
}
