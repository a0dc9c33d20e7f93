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
	mu   sync.Mutex
}

// Head reads the head; nil if the file does not exist.
func (h *File) Head(context.Context, string) (*database.Head, error) {
	b, err := os.ReadFile(h.Path)
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

// SetHead replaces the file, unless it is as far already.
func (h *File) SetHead(ctx context.Context, log string, head database.Head) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, err := h.Head(ctx, log); err != nil || (old != nil && old.Seq >= head.Seq) {
		return err
	}
	return h.replace(head)
}

// ResetHead replaces the file.
func (h *File) ResetHead(_ context.Context, _ string, head database.Head) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replace(head)
}

func (h *File) replace(head database.Head) error {
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return safefile.Replace(h.Path, append(b, '\n'), 0o600)
}
