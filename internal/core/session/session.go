// Package session holds the state of one agent's conversation: its owner, its workspace, its remaining budget, and
// the tokens that replace personal data in it. It lives in memory: a session ends with the process that opened it.
// The budgets of a session count in that process; the limits of contracts, in Rates.
package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
)

// Options are the bounds of every session. A zero bound allows nothing.
type Options struct {
	MaxSessions int           // open at once
	MaxCalls    int           // of one session over its whole life, refused ones included
	MaxDepth    int           // runs inside runs
	MaxBytes    int64         // arguments and results of one session's calls
	MaxRun      time.Duration // that the agent's own calls take together; a call in a program is part of its run
	Rate        int           // calls that one session's programs can begin in a second; more of them wait
	MaxTokens   int           // values in one session's vault
	Idle        time.Duration // without a call, after which Sweep closes it
}

// Defaults returns bounds for one machine.
func Defaults() Options {
	return Options{MaxSessions: 1000, MaxCalls: 100_000, MaxDepth: 8, MaxBytes: 10 << 30,
		MaxRun: 24 * time.Hour, Rate: 1000, MaxTokens: 100_000, Idle: 24 * time.Hour}
}

// Budgets returns the bounds that a configuration sets, over those of Defaults.
func Budgets(s contract.Sessions) Options {
	o := Defaults()
	o.MaxCalls, o.MaxDepth = cmp.Or(s.Calls, o.MaxCalls), cmp.Or(s.Depth, o.MaxDepth)
	o.MaxBytes = cmp.Or(int64(s.DataMB)<<20, o.MaxBytes)
	o.MaxRun = cmp.Or(time.Duration(s.RunSeconds)*time.Second, o.MaxRun)
	o.Rate = cmp.Or(s.CallsPerSecond, o.Rate)
	return o
}

// Info describes one session.
type Info struct {
	ID        call.Session   `json:"id"` // "n_…"
	Principal call.Principal `json:"principal"`
	Workspace string         `json:"workspace"` // "w_…"
	Created   time.Time      `json:"created"`
	Used      time.Time      `json:"used"` // the last call, or Created
	Calls     int            `json:"calls"`
	Bytes     int64          `json:"bytes"`
	RunMS     int64          `json:"run_ms"`
	Stopped   bool           `json:"stopped,omitempty"` // the operator has ended it; it takes no call any more
}

// entry is one open session; its info is guarded by Manager.mu, its vault guards itself.
type entry struct {
	info  Info
	live  int                                   // calls under way
	end   map[*context.CancelCauseFunc]struct{} // of those
	vault *Vault
	ran   time.Duration // by the agent's own calls
	turn  time.Time     // when the next call of a program can begin, if calls come evenly
}

// Rates holds the limits of contracts on calls of a capability. Take returns the reason against a call, or a function
// that ends it.
type Rates interface {
	Take(d policy.Decision) (release func(), why *call.Reason)
}

// Manager holds the open sessions. Use NewManager.
type Manager struct {
	Rates Rates      // nil: a capability with a limit is refused
	Ended func(Info) // is given each session that closes; set before the first one opens; nil: nothing
	opt   Options
	now   func() time.Time
	mu    sync.Mutex
	open  map[call.Session]*entry
	stop  func(Info) bool // sessions that the operator has stopped; nil: none
}

// NewManager returns a manager without sessions. now is the clock, which must not go backwards.
func NewManager(o Options, now func() time.Time) *Manager {
	return &Manager{opt: o, now: now, open: map[call.Session]*entry{}}
}

// Bound replaces the bounds of all sessions, the open ones included.
func (m *Manager) Bound(o Options) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opt = o
}

// Open starts a session for a principal. It refuses the empty principal, and more sessions than
// Options.MaxSessions.
func (m *Manager) Open(p call.Principal, workspace string) (Info, error) {
	return m.Resume(call.Session(id.New(id.Session)), p, workspace)
}

// Resume opens a session under an id that it had before, in another process. It refuses what Open
// refuses, and an id that is open here.
func (m *Manager) Resume(s call.Session, p call.Principal, workspace string) (Info, error) {
	if p == "" {
		return Info{}, fmt.Errorf("session: no principal to open it for")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) >= m.opt.MaxSessions {
		return Info{}, fmt.Errorf("session: %d are open, which is the most allowed; close one first", len(m.open))
	}
	if m.open[s] != nil {
		return Info{}, fmt.Errorf("session: %s is open already", s)
	}
	at := m.now()
	e := &entry{vault: NewVault(m.opt.MaxTokens), end: map[*context.CancelCauseFunc]struct{}{}}
	e.info = Info{ID: s, Principal: p, Workspace: workspace, Created: at, Used: at}
	e.info.Stopped = m.stop != nil && m.stop(e.info)
	m.open[e.info.ID] = e
	return e.info, nil
}

// Get returns an open session.
func (m *Manager) Get(s call.Session) (Info, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.open[s]
	if e == nil {
		return Info{}, false
	}
	return e.info, true
}

// List returns the open sessions, oldest first.
func (m *Manager) List() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Info, 0, len(m.open))
	for _, e := range m.open {
		all = append(all, e.info)
	}
	slices.SortFunc(all, func(a, b Info) int { return a.Created.Compare(b.Created) })
	return all
}

// Close ends a session and wipes its vault. It reports whether the session was open.
func (m *Manager) Close(s call.Session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.open[s]
	if ok {
		m.close(s, e)
	}
	return ok
}

// close ends an open session. m.mu is held.
func (m *Manager) close(s call.Session, e *entry) {
	e.vault.Wipe()
	delete(m.open, s)
	if m.Ended != nil {
		m.Ended(e.info)
	}
}

// Sweep closes every session that has been idle for Options.Idle and has no call under way, and
// returns what it closed.
func (m *Manager) Sweep() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.now()
	var closed []Info
	for s, e := range m.open {
		if e.live == 0 && at.Sub(e.info.Used) >= m.opt.Idle {
			closed = append(closed, e.info)
			m.close(s, e)
		}
	}
	return closed
}

// Token returns the session's token for a value, "[EMAIL_1]". It reports false if the session does not exist or its
// vault is full: then the caller must mask the value.
func (m *Manager) Token(s call.Session, class, value string) (string, bool) {
	v := m.vault(s)
	if v == nil {
		return "", false
	}
	return v.Token(class, value)
}

// Value returns the value of a session's token. A token from another session has no value here, or is this session's
// own of that number.
func (m *Manager) Value(s call.Session, token string) (string, bool) {
	v := m.vault(s)
	if v == nil {
		return "", false
	}
	return v.Value(token)
}

func (m *Manager) vault(s call.Session) *Vault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.open[s]; e != nil {
		return e.vault
	}
	return nil
}
