package runner

import (
	"sync"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// freezeAfter is how long a program waits for a human before it is frozen. A yes that is there already costs nothing.
const freezeAfter = 200 * time.Millisecond

// standstill freezes the processes of a program while all its calls wait for a human. A zero standstill freezes none.
// The sandbox's own limits hold meanwhile, and its wall clock as sandbox.Clock has it.
type standstill struct {
	pause, resume func() error

	mu     sync.Mutex
	timer  *time.Timer // freezes the program; nil: no call waits
	frozen bool
	over   bool  // the program has ended
	why    error // the first failure; the program goes on unfrozen
}

// can prepares to freeze the program of a sandbox, and reports whether that is possible. A named sandbox is paused by
// its owner alone.
func (s *standstill) can(sb sandbox.Sandbox, o Options) bool {
	a := sb.Abilities()
	s.pause, s.resume = a.Pause, a.Resume
	return a.Pause != nil && a.Resume != nil && o.Started == nil
}

// still freezes the program a little later, or lets it continue.
func (s *standstill) still(still bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	switch {
	case still && !s.over:
		var own *time.Timer
		own = time.AfterFunc(freezeAfter, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.timer == own && !s.over { // no answer came meanwhile
				s.fail(s.pause())
				s.frozen = true
			}
		})
		s.timer = own
	case !still && s.frozen:
		s.frozen = false
		s.fail(s.resume())
	}
}

func (s *standstill) fail(err error) {
	if s.why == nil {
		s.why = err
	}
}

// end is called after the end of the program.
func (s *standstill) end(f *facts.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over = true; s.timer != nil {
		s.timer.Stop()
	}
	if s.why != nil {
		f.Warnings = append(f.Warnings, "the program was not frozen while it waited for a human: "+s.why.Error())
	}
}
