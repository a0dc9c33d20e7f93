package template

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// half is the beginning of the name of a template that is being made or removed.
const half = ".new-"

// until is a reader that ends with the error of ctx when ctx is done.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// begin makes a folder in dir that is held for as long as this process lives, so that no other waldo sweeps it.
func begin(dir string) (at string, release func(), err error) {
	enter, err := hold(dir, shared) // no sweep can run between making the folder and holding it
	if err != nil {
		return "", nil, err
	}
	defer enter()
	if at, err = os.MkdirTemp(dir, half); err != nil {
		return "", nil, err
	}
	if release, err = hold(at, alone); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(at))
	}
	return at, release, nil
}

// leaving is how long a command that was cancelled spends on removing what it has made.
const leaving = 100 * time.Millisecond

// clearAway removes a folder. If ctx is done it waits for leaving at most: the next sweep removes the rest.
func clearAway(ctx context.Context, at string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = os.RemoveAll(at)
	}()
	var late <-chan time.Time
	if ctx.Err() != nil {
		late = time.After(leaving)
	}
	select {
	case <-done:
	case <-late:
	}
}

// sweep removes the half-made templates in dir that no living process holds. The next waldo tries again those
// that cannot be removed now.
func sweep(dir string) {
	left := abandoned(dir)
	for at, release := range left {
		_ = os.RemoveAll(at)
		release()
	}
}

// abandoned returns the half-made templates in dir that no living process holds, each held now.
func abandoned(dir string) map[string]func() {
	leave, err := hold(dir, alone)
	if err != nil {
		return nil // one is being begun, or another process sweeps
	}
	defer leave()
	left := map[string]func(){}
	entries, _ := os.ReadDir(dir) // none where it cannot be read
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), half) {
			continue
		}
		if release, err := hold(at, alone); err == nil {
			left[at] = release
		}
	}
	return left
}
