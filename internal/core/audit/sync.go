package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// syncer syncs written records: at once if a caller waits, else SyncDelay later. It then moves the head. It ends with
// the writer.
func (l *Log) syncer() {
	defer l.ended.Done()
	var headDue <-chan time.Time
	for open := true; open; {
		select {
		case _, open = <-l.wake:
			l.pause()
			l.sync()
			if headDue == nil {
				headDue = time.After(l.o.HeadDelay)
			}
		case <-headDue:
			headDue = nil
			_ = l.moveHead() // a failure is latched
		}
	}
	l.sync()
	_ = l.moveHead() // Close returns the failure
}

// pause waits SyncDelay, or until a caller waits for the disk.
func (l *Log) pause() {
	timer := time.NewTimer(l.o.SyncDelay)
	defer timer.Stop()
	for !l.awaited() {
		select {
		case _, ok := <-l.wake:
			if !ok {
				return
			}
		case <-timer.C:
			return
		}
	}
}

func (l *Log) awaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiters) > 0
}

// sync makes everything written so far durable and answers those who wait for it.
func (l *Log) sync() {
	l.mu.Lock()
	f, at, waiters, failed := l.file, l.at, l.waiters, l.failed
	l.waiters, l.told = nil, false
	l.mu.Unlock()
	if at.seq == l.synced.seq && len(waiters) == 0 {
		return
	}
	err := failed
	if err == nil {
		err = f.Sync()
	}
	if errors.Is(err, fs.ErrClosed) {
		err = nil // the segment was followed by another, which is done only after a sync
	}
	l.mu.Lock()
	switch {
	case err == nil:
		l.synced = at
	case l.failed == nil:
		l.badSync = true
		_ = l.latch(fmt.Errorf("sync: %w", err), len(waiters))
	}
	l.mu.Unlock()
	if err == nil && slices.ContainsFunc(waiters, func(w waiter) bool { return w.p.pass || vouched(w.p.kind) }) {
		err = l.moveHead()
	}
	for _, w := range waiters {
		if err != nil {
			w.r = result{err: fmt.Errorf("audit: sync: %w", err)}
		}
		w.p.result <- w.r
	}
}

// vouched reports whether the heads must pass a record of a kind before any caller acts on it. Otherwise an attacker
// who kills waldo and cuts the tail can hide the use of an approval or a revocation as a crash.
func vouched(kind string) bool {
	return kind == KindVerdict || kind == KindAnswer || kind == KindApprover || kind == KindPruned || kind == KindChange ||
		kind == KindTrust
}

// moveHead tells the heads how far the log is on the disk. A head that cannot be moved stops the
// log: without it, a cut tail would not be seen.
func (l *Log) moveHead() error {
	l.mu.Lock()
	at, failed := l.synced, l.failed
	l.mu.Unlock()
	if failed != nil {
		return failed
	}
	err := l.setHeads(context.Background(), at)
	if err != nil {
		l.mu.Lock()
		l.badHead = true
		err = l.latch(fmt.Errorf("head: %w", err), 0)
		l.mu.Unlock()
	}
	return err
}

func (l *Log) setHeads(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	h := at.head(l.o.Now())
	err := l.o.Heads.SetHead(ctx, Name, h)
	if l.o.Second != nil {
		err = errors.Join(err, l.o.Second.SetHead(ctx, Name, h))
	}
	return err
}
