package session

import (
	"context"
	"fmt"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Take counts one decided call against its session and its capability. It returns a function that ends the call,
// never nil and safe to call twice. A refused call has a reason: session.absent, session.principal, session.stopped,
// session.depth, session.budget, rate.exceeded or concurrency.exceeded.
//
// A denied call counts against the session, so that probing has an end, but takes nothing from
// its capability. A dry run counts nowhere.
func (m *Manager) Take(d policy.Decision) (func(), *call.Reason) {
	if d.DryRun {
		return func() {}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, at := m.open[d.Call.Session], m.now()
	if why := m.refuse(e, d); why != nil {
		return func() {}, why
	}
	e.info.Calls++
	e.info.Used = at
	if d.Effect == policy.Deny {
		return func() {}, nil
	}
	release, why := m.meter(d, at)
	if why != nil {
		return func() {}, why
	}
	e.live++
	ended := false
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if ended {
			return
		}
		ended = true
		e.live--
		e.info.Used = m.now()
		release()
	}, nil
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

// meter is the use of one capability, over all sessions: the limits protect what is behind it.
type meter struct {
	taken []taken // within the window, oldest first
	per   time.Duration
	live  int
}

// taken is one call in the window. The key is set for calls that wait for a human.
type taken struct {
	at  time.Time
	key string
}

func (u *meter) idle(at time.Time) bool {
	u.forget(at)
	return u.live == 0 && len(u.taken) == 0
}

// forget drops the calls that have left the window. A call taken exactly one window ago has left.
func (u *meter) forget(at time.Time) {
	n := 0
	for n < len(u.taken) && at.Sub(u.taken[n].at) >= u.per {
		n++
	}
	u.taken = u.taken[n:]
}

// meter takes one call from the capability's rate and concurrency. Zero sets no limit, because the contract's reader
// writes zero only for an unset limit. Half a rate (calls without a window, or a window without calls) allows
// nothing.
func (m *Manager) meter(d policy.Decision, at time.Time) (func(), *call.Reason) {
	rate, most := d.Contract.RateLimit, d.Contract.Concurrency
	if rate == (contract.Rate{}) && most == 0 {
		return func() {}, nil
	}
	u := m.caps[d.Call.Capability]
	if u == nil {
		u = &meter{}
		m.caps[d.Call.Capability] = u
	}
	if most != 0 && u.live >= most {
		return nil, reason(d, "concurrency.exceeded", "concurrency",
			fmt.Sprintf("%d calls are under way, which is the most allowed", u.live))
	}
	if rate != (contract.Rate{}) && !u.take(d, rate, at) {
		return nil, reason(d, "rate.exceeded", "rate_limit", fmt.Sprintf("at most %d calls in %s", rate.Calls, rate.Per))
	}
	u.live++
	return func() { u.live-- }, nil
}

// take adds the call to the window, or reports that the window is full. A retry that quotes an approval, with
// arguments already counted in this window, is not counted again.
func (u *meter) take(d policy.Decision, rate contract.Rate, at time.Time) bool {
	u.per = rate.Per
	u.forget(at)
	key := ""
	if d.Effect == policy.Ask {
		key = string(d.Call.Session) + " " + d.Call.Args.Digest()
		for _, t := range u.taken {
			if d.Call.ApprovalID != "" && t.key == key {
				return true
			}
		}
	}
	if rate.Per <= 0 || len(u.taken) >= rate.Calls {
		return false
	}
	u.taken = append(u.taken, taken{at: at, key: key})
	return true
}

// reason quotes the contract's line for the key that refuses the call.
func reason(d policy.Decision, code, key, text string) *call.Reason {
	at := d.Contract.Keys[key]
	if at == (contract.Position{}) {
		at = d.Contract.At
	}
	return &call.Reason{Code: code, Text: text, File: at.File, Line: at.Line, Column: at.Column}
}
