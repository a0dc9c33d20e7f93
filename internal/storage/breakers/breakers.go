// Package breakers keeps the open circuit breakers and the resting servers of all processes of a state directory, so
// that waldo tools and the console can show them. Each process decides by its own.
package breakers

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Store is names and values in buckets. *database.Store is one.
type Store interface {
	Put(ctx context.Context, bucket, name, value string) error
	Delete(ctx context.Context, bucket, name string) error
	List(ctx context.Context, bucket string) (map[string]string, error)
}

const bucket = "breakers"

// Breaker is the open circuit breaker of a server in one process.
type Breaker struct {
	Server  string    `json:"server"`
	Process string    `json:"process"`
	Fails   int       `json:"fails"` // in a row; 0: the server did not start, or ended too often, and rests
	Until   time.Time `json:"until"` // from then on it is half open: one read tries the server
}

// Note stores a breaker. One with a zero Until is closed.
func Note(ctx context.Context, s Store, b Breaker) error {
	name := b.Process + " " + b.Server
	if b.Until.IsZero() {
		return s.Delete(ctx, bucket, name)
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return s.Put(ctx, bucket, name, string(text))
}

// Open returns the open breakers of processes that are at work, sorted by server and process. It forgets those of
// processes that have ended, and rests that are over.
func Open(ctx context.Context, s Store, gone func(process string) bool) (all []Breaker, _ error) {
	rows, err := s.List(ctx, bucket)
	for name, text := range rows {
		var b Breaker
		if json.Unmarshal([]byte(text), &b) == nil && !gone(b.Process) && (b.Fails > 0 || time.Now().Before(b.Until)) {
			all = append(all, b)
		} else if err == nil {
			err = s.Delete(ctx, bucket, name)
		}
	}
	slices.SortFunc(all, func(a, b Breaker) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Process, b.Process))
	})
	return all, err
}
