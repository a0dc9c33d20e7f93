package main

import (
	"sync/atomic"

	"waldo/internal/app/generation"
	"waldo/internal/frontend/mcpserver"
)

// lives are the sets of services that share one state: the one in force, and earlier ones until their calls are over.
type lives struct {
	server atomic.Pointer[mcpserver.Server] // the one that serves; nil: none does
	*generation.Generations[*house]
}

func newLives(first *house) *lives {
	return &lives{Generations: generation.New(first, (*house).retire)}
}

// inForce returns the house of the configuration in force.
func (l *lives) inForce() *house { return l.Now() }

// change puts another house in force.
func (l *lives) change(next *house) {
	l.Change(next, func() {
		if srv := l.server.Load(); srv != nil {
			srv.Replace(next.catalogue)
		}
	})
}
