package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Take counts one decided call against its session and its capability. It returns a function that ends the call,
// never nil and safe to call twice. A refused call has a reason: session.absent, session.principal, session.stopped,
// session.depth, session.budget, or one of Rates.
//
// A denied call counts against the session, so that probing has an end, but takes nothing from
// its capability. A dry run counts nowhere.
func (m *Manager) Take(d policy.Decision) (func(), *call.Reason) {
	if d.DryRun {
		return func() {}, nil
	}
	e, why := m.count(d)
	if why != nil || d.Effect == policy.Deny {
		return func() {}, why
	}
	release := func() {}
	if k := &d.Contract; k.RateLimit != (contract.Rate{}) || k.Concurrency != 0 {
		if m.Rates == nil {
			why = &call.Reason{Code: "rate.unavailable", Text: "the calls of this capability could not be counted"}
		} else {
			release, why = m.Rates.Take(d)
		}
	}
	if why != nil {
		m.ended(e)
		return func() {}, why
	}
	return sync.OnceFunc(func() {
		m.ended(e)
		release()
	}), nil
}

// count counts a call against its session. A call that is not denied is under way then.
func (m *Manager) count(d policy.Decision) (*entry, *call.Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.open[d.Call.Session]
	if why := m.refuse(e, d); why != nil {
		return e, why
	}
	e.info.Calls++
	e.info.Used = m.now()
	if d.Effect != policy.Deny {
		e.live++
	}
	return e, nil
}

// ended notes that a call of a session is over.
func (m *Manager) ended(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.live--
	e.info.Used = m.now()
}

// refuse returns the reason against the call before anything is counted.
func (m *Manager) refuse(e *entry, d policy.Decision) *call.Reason {
	switch {
	case e == nil:
		return &call.Reason{Code: "session.absent", Text: "the call belongs to no open session"}
	case e.info.Principal != d.Call.Principal:
		return &call.Reason{Code: "session.principal", Text: "the session belongs to somebody else"}
	case e.info.Stopped:
		return &stopped
	case d.Call.Depth < 0 || d.Call.Depth > m.opt.MaxDepth:
		return &call.Reason{
			Code: "session.depth", Text: fmt.Sprintf("runs inside runs: at most %d deep (sessions.depth)", m.opt.MaxDepth),
		}
	case e.info.Calls >= m.opt.MaxCalls:
		return &call.Reason{
			Code: "session.budget", Text: fmt.Sprintf("the session has spent its %d calls (sessions.calls)", m.opt.MaxCalls),
		}
	case e.info.Bytes >= m.opt.MaxBytes:
		return &call.Reason{
			Code: "session.budget", Text: fmt.Sprintf("the session has spent its %d MB of data (sessions.data_mb)",
				m.opt.MaxBytes>>20),
		}
	case e.ran >= m.opt.MaxRun:
		return &call.Reason{
			Code: "session.budget", Text: fmt.Sprintf("the session has spent its %s of running time (sessions.run_seconds)",
				m.opt.MaxRun),
		}
	}
	return nil
}

// Spend counts what a call has used: the bytes of its arguments and its result, and the time that it ran. The time of
// a call that a program made is in the time of its run.
func (m *Manager) Spend(c call.Call, r call.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.open[c.Session]
	if e == nil {
		return
	}
	e.info.Bytes += int64(len(c.Args.Raw())) + r.Size()
	if c.Depth == 0 {
		e.ran += time.Duration(r.Facts.Usage.WallMS * float64(time.Millisecond))
		e.info.RunMS = e.ran.Milliseconds()
	}
}

// Pace waits until a call that a program makes can begin: Options.Rate in a second, after as many at once. A call of
// the agent itself does not wait. It returns early if ctx ends.
func (m *Manager) Pace(ctx context.Context, c call.Call) {
	if c.Depth == 0 {
		return
	}
	if wait := m.slot(c.Session); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// slot takes the next turn of a session, and returns how long to wait for it.
func (m *Manager) slot(s call.Session) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.open[s]
	if e == nil || m.opt.Rate <= 0 {
		return time.Second // the call is refused after it
	}
	at := m.now()
	if burst := at.Add(-time.Second); e.turn.Before(burst) {
		e.turn = burst
	}
	e.turn = e.turn.Add(time.Second / time.Duration(m.opt.Rate))
	return e.turn.Sub(at)
}
