//go:build linux

package zygote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Rotation says when a zygote is replaced.
type Rotation struct {
	Most int           // children
	Age  time.Duration // since its start
}

// Kind identifies zygotes that can replace each other: the same program for the same owner.
type Kind struct {
	Argv   string // with NUL between the words
	Head   string
	Domain string // who may have sandboxes of it; never shared with another
}

// Pool is the pool of zygotes, one of each kind.
type Pool struct {
	Rotation
	Start func(ctx context.Context, k Kind) (*Zygote, error)

	mu     sync.Mutex
	all    []*place
	closed bool
}

// Most is the number of zygotes at a time: each has some 20 MB.
const Most = 8

// place is where the zygote of a kind is.
type place struct {
	kind   Kind
	used   time.Time
	zygote *Zygote    // nil: not started
	making sync.Mutex // held by who makes one
}

// Get returns the zygote of a kind, or nil if none is ready. An old one is used until a new one has replaced
// it.
func (n *Pool) Get(k Kind) *Zygote {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.all {
		if p.kind != k || p.zygote == nil {
			continue
		}
		if p.zygote.old(n.Rotation) && p.making.TryLock() {
			p.making.Unlock()
			go func() { _ = n.Keep(context.Background(), k) }() // an error is dropped: a caller that waits for one gets its own
		}
		p.used = time.Now()
		if p.zygote.Usable() {
			return p.zygote
		}
	}
	return nil
}

// Keep makes sure that there is a zygote of the kind, and a new one in place of an old one. It
// returns when it is ready.
func (n *Pool) Keep(ctx context.Context, k Kind) error {
	p := n.place(k)
	if p == nil {
		return errors.New("zygote: no more are made")
	}
	p.making.Lock()
	defer p.making.Unlock()
	n.mu.Lock()
	fresh := p.zygote != nil && !p.zygote.old(n.Rotation)
	n.mu.Unlock()
	if fresh {
		return nil
	}
	z, err := n.Start(ctx, k)
	if err != nil {
		return err
	}
	n.mu.Lock()
	before, late := p.zygote, n.closed || !slices.Contains(n.all, p)
	if !late {
		p.zygote = z
	}
	n.mu.Unlock()
	if late {
		before = z
	}
	if before != nil {
		err = before.Close()
	}
	return err
}

// place returns the place of a kind; the one that was used longest ago makes room.
func (n *Pool) place(k Kind) *place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	for _, p := range n.all {
		if p.kind == k {
			return p
		}
	}
	p := &place{kind: k, used: time.Now()}
	n.all = append(n.all, p)
	if len(n.all) > Most {
		slices.SortFunc(n.all, func(a, b *place) int { return b.used.Compare(a.used) })
		last := n.all[Most]
		n.all = n.all[:Most]
		if last.zygote != nil {
			_ = last.zygote.Close() // it has nothing to say any more
		}
	}
	return p
}

// Close ends all zygotes.
func (n *Pool) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	var errs []error
	for _, p := range n.all {
		if p.zygote != nil {
			errs = append(errs, p.zygote.Close())
		}
	}
	n.all = nil
	return errors.Join(errs...)
}
