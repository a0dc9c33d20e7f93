// Package eras remembers, in the state directory, which servers speak legacy revisions of MCP only. A start then
// skips the question that such a server does not know.
package eras

import (
	"context"
	"sync"
	"time"
)

// Store is where the book is: names and values in buckets. *database.Store is one.
type Store interface {
	Get(ctx context.Context, bucket, name string) (value string, ok bool, err error)
	Put(ctx context.Context, bucket, name, value string) error
}

// keep is how long an entry holds: the program behind the same command can be a newer one by then.
const keep = 7 * 24 * time.Hour

const bucket = "server eras"

// Book remembers servers that speak legacy revisions only. A nil Book remembers nothing.
type Book struct {
	store Store
	now   func() time.Time
	mu    sync.Mutex
	known map[string]bool // by the writes of this process
}

// New makes a book.
func New(s Store, now func() time.Time) *Book {
	return &Book{store: s, now: now, known: map[string]bool{}}
}

// Legacy reports whether the server that is started so spoke legacy revisions alone, within the last week.
func (b *Book) Legacy(ctx context.Context, command string) bool {
	if b == nil {
		return false
	}
	text, ok, err := b.store.Get(ctx, bucket, command)
	since, wrong := time.Parse(time.RFC3339, text)
	age := b.now().Sub(since)
	return ok && err == nil && wrong == nil && age >= 0 && age < keep
}

// Note remembers what a server was found to speak. A store that fails costs the next start a question.
func (b *Book) Note(ctx context.Context, command string, legacy bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	was, noted := b.known[command]
	b.known[command] = legacy
	b.mu.Unlock()
	if noted && was == legacy || !legacy && !b.Legacy(ctx, command) {
		return
	}
	value := ""
	if legacy {
		value = b.now().UTC().Format(time.RFC3339)
	}
	_ = b.store.Put(ctx, bucket, command, value)
}
