package catalog

import (
	"context"
	"sync"
	"time"

	"waldo/internal/model/call"
)

// feeds load the servers' lists, each at its own time, and cache them.
type sourceLoaders[T any] struct {
	o     Options
	code  string // of the problem with one that does not answer
	ctx   context.Context
	by    map[string]*sourceLoader[T] // by server
	same  func(a, b T) bool
	after func(server string, same bool) // called when a server was asked: whether nothing has changed
}

// sourceLoader is the loaded state of one server's list.
type sourceLoader[T any] struct {
	list    func(ctx context.Context) (T, error)
	mu      sync.Mutex
	have    T
	told    bool // it has said something
	kept    bool // have comes from the accepted lock file, until the server answers
	problem *Problem
	fresh   bool
	begun   time.Time     // when it was last asked
	failed  time.Time     // when it was last asked in vain
	loading chan struct{} // closed when the load under way is over; nil when idle
}

func newSourceLoaders[T any, F ~func(ctx context.Context) (T, error)](ctx context.Context, o Options,
	code string, lists map[string]F,
	same func(a, b T) bool, after func(server string, same bool)) *sourceLoaders[T] {
	fs := &sourceLoaders[T]{o: o, code: code, ctx: ctx, by: map[string]*sourceLoader[T]{}, same: same, after: after}
	for server, list := range lists {
		fs.by[server] = &sourceLoader[T]{list: list}
	}
	return fs
}

// get returns what the server said last, and adds its problem to the others.
func (f *sourceLoader[T]) get(problems *[]Problem) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != nil {
		*problems = append(*problems, *f.problem)
	}
	return f.have
}

// keep takes a list until the server has said something.
func (f *sourceLoader[T]) keep(have T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.told {
		f.have, f.kept = have, true
	}
}

// listed reports whether there is a list that was accepted, and none of the server's own yet.
func (f *sourceLoader[T]) listed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept && !f.told
}

// awaited reports whether the server is being asked and has said nothing yet.
func (f *sourceLoader[T]) awaited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loading != nil && !f.told && !f.kept && f.problem == nil
}

// invalidate marks a list as possibly changed. It reloads the list if it was ever requested.
func (fs *sourceLoaders[T]) invalidate(server string) {
	f := fs.by[server]
	if f == nil {
		return
	}
	f.mu.Lock()
	wanted := !f.begun.IsZero()
	f.fresh = false
	f.mu.Unlock()
	if wanted {
		fs.begin(server, f)
	}
}

// load asks the servers whose lists are not fresh and waits, but not longer than Wait, nor for one of which there is a
// list that was accepted.
func (fs *sourceLoaders[T]) load(ctx context.Context) { fs.await(ctx, "", "") }

// await does so for all servers, or for the one that a capability is of, as long as a call of that may take.
func (fs *sourceLoaders[T]) await(ctx context.Context, only string, cap call.Capability) {
	var waiting []chan struct{}
	for server, f := range fs.by {
		if only == "" || server == only {
			if done := fs.begin(server, f); done != nil && (only != "" || !f.listed()) {
				waiting = append(waiting, done)
			}
		}
	}
	if len(waiting) == 0 {
		return
	}
	patience := fs.o.Wait
	if only != "" {
		patience = max(patience, fs.o.Contracts.Of(cap).Timeout)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	for _, done := range waiting {
		select {
		case <-done:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin starts a load unless the list is fresh, was asked for in vain just now, or is being asked for.
func (fs *sourceLoaders[T]) begin(server string, f *sourceLoader[T]) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loading != nil {
		return f.loading
	}
	if f.fresh || time.Since(f.failed) < fs.o.Retry {
		return nil
	}
	done, pause := make(chan struct{}), time.Until(f.begun.Add(time.Second))
	f.loading, f.fresh, f.begun = done, true, time.Now().Add(max(0, pause)) // an invalidate from now on asks again
	go func() {
		time.Sleep(pause)
		ctx, cancel := context.WithTimeout(fs.ctx, fs.o.Load)
		defer cancel()
		list, err := f.list(ctx)
		f.mu.Lock()
		was, same := f.problem, true
		if err != nil {
			f.fresh, f.failed = false, time.Now()
			f.problem = &Problem{Server: server, Code: fs.code, Text: err.Error()}
			same = was != nil && *was == *f.problem
		} else {
			same = was == nil && fs.same(f.have, list)
			f.have, f.told, f.problem, f.failed = list, true, nil, time.Time{}
		}
		f.mu.Unlock()
		fs.after(server, same)
		f.mu.Lock()
		f.loading = nil // only now: who asks meanwhile waits for the list that is being made
		stale := !f.fresh && f.failed.IsZero()
		f.mu.Unlock()
		close(done)
		if stale && fs.ctx.Err() == nil {
			fs.begin(server, f)
		}
	}()
	return done
}
