// Package headfile stores the head of a log in a file, apart from the log.
package headfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// File is a head in a file, which may be on another disk or a share that only grows.
type File struct {
	Path string
	Lock string // a file that processes lock while they change the head; empty: this process alone does
	mu   sync.Mutex
}

// Head reads the head; nil if the file does not exist.
func (h *File) Head(context.Context, string) (*database.Head, error) {
	b, err := safefile.Read(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var head database.Head
	if err := json.Unmarshal(b, &head); err != nil || head.Seq == 0 {
		return nil, fmt.Errorf("%s holds no head", h.Path)
	}
	return &head, nil
}

// SetHead moves the ends in the file forward.
func (h *File) SetHead(ctx context.Context, log string, head database.Head) error {
	return h.locked(func() error {
		old, err := h.Head(ctx, log)
		if err != nil {
			return err
		}
		head, differs := head.Over(old)
		if !differs {
			return nil
		}
		return h.replace(head)
	})
}

// ResetHead replaces the file.
func (h *File) ResetHead(_ context.Context, _ string, head database.Head) error {
	return h.locked(func() error { return h.replace(head) })
}

// locked runs fn while no other process changes the file.
func (h *File) locked(fn func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Lock != "" {
		f, err := os.OpenFile(h.Lock, os.O_CREATE|os.O_RDWR|safefile.NoFollow, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // which ends the lock
		if err := safefile.Lock(f, false); err != nil {
			return err
		}
	}
	return fn()
}

func (h *File) replace(head database.Head) error {
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return safefile.Replace(h.Path, append(b, '\n'), 0o600)
}
