//go:build linux && (amd64 || arm64)

package namespace

import (
	"sync/atomic"
	"testing"
	"time"
)

// token is a thing that knows how often it was given back, and takes its time about it.
type token struct {
	ended *atomic.Int32
	wait  chan struct{}
}

func (token) silent() error  { return nil }
func (t token) close() error { t.ended.Add(1); <-t.wait; return nil }

// TestKeptOnce: a prepared thing either goes to one sandbox or is ended, never both, while a driver is closed.
func TestKeptOnce(t *testing.T) {
	const most = 4
	wait := make(chan struct{})
	var made, ended atomic.Int32
	k := &kept[int, token]{most: func(int) int { return most }, over: func(int) bool { return false },
		make: func(int) (token, error) { made.Add(1); return token{&ended, wait}, nil }}
	ready := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.ready)
	}
	_, _ = k.take(1)
	for end := time.Now().Add(time.Minute); ready() < most && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	one, ok := k.take(1)
	if !ok {
		t.Fatal("control: nothing was made ahead")
	}
	k.end(one)
	over := make(chan error)
	go func() { over <- k.close() }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		k.mu.Lock()
		closed := k.closed
		k.mu.Unlock()
		if closed {
			break
		}
	}
	if _, ok := k.take(1); ok {
		t.Error("what is being ended was given to a box")
	}
	select {
	case <-over:
		t.Error("closed before what was taken has ended")
	case <-time.After(20 * time.Millisecond):
	}
	close(wait)
	if err := <-over; err != nil {
		t.Error(err)
	}
	k.end(one) // late: no goroutine waits for it after this
	if got, want := ended.Load(), made.Load()+1; got != want {
		t.Errorf("%d things were ended %d times, wanted %d", made.Load(), got, want)
	}
}
