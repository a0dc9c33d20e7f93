// Package bounds limits a server: its unsolicited messages, its list change notifications, and the part of its stderr
// that is stored.
package bounds

import (
	"context"
	"strings"
	"sync"
	"time"
)

// The limits on unsolicited messages: a burst in units, and a rate in units per second. A message costs one unit, and
// one more for each KiB. A server beyond the limit is stopped. Reading costs a second or two of processor time for
// the burst, and a hundredth of a processor for the rate.
const (
	Burst = 200_000
	Rate  = 1000
)

// Meter counts what a server sends unasked.
type Meter struct {
	mu   sync.Mutex
	used float64   // units that are not paid back yet
	at   time.Time // when that was counted
}

// Full counts a message of that many bytes, and reports whether that is more than a server may send.
func (m *Meter) Full(bytes int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.at.IsZero() {
		m.used = max(0, m.used-Rate*now.Sub(m.at).Seconds())
	}
	m.at = now
	m.used += 1 + float64(bytes)/1024
	return m.used > Burst
}

// Bounds of the interval between two notifications of a change. It doubles each time, until the server is quiet.
const (
	FirstPace   = 100 * time.Millisecond
	LongestPace = 30 * time.Second
)

// Pace has a server's word that something changed passed on now and then, however often it comes. The last word is
// never lost.
type Pace struct {
	mu    sync.Mutex
	Tell  func()
	after func(d time.Duration, f func()) // nil: time.AfterFunc
	wait  time.Duration                   // after the last time
	last  time.Time                       // when it was passed on
	due   bool                            // it will be
}

// For makes the pace of a server's notifications until ctx is done; tell can be nil.
func For(ctx context.Context, server string, tell func(server string)) *Pace {
	return &Pace{Tell: func() {
		if tell != nil && ctx.Err() == nil {
			tell(server)
		}
	}}
}

// Ask passes the word on, at once or when its time comes.
func (p *Pace) Ask(now time.Time) {
	if p.next(now) {
		p.Tell()
	}
}

// next reports whether the word is passed on now.
func (p *Pace) next(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due {
		return false
	}
	since := now.Sub(p.last)
	if since >= 2*LongestPace {
		p.wait = 0
	}
	left := max(0, p.wait-since)
	p.wait = min(max(FirstPace, 2*p.wait), LongestPace)
	p.last = now.Add(left)
	if left == 0 {
		return true
	}
	p.due = true
	after := p.after
	if after == nil {
		after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	after(left, func() {
		p.mu.Lock()
		p.due = false
		p.mu.Unlock()
		p.Tell()
	})
	return false
}

// Tail holds the last bytes written to it, and before them those that a secret at their beginning may take.
type Tail struct {
	mu  sync.Mutex
	b   []byte
	cut bool // there were more
}

const (
	shown   = 4 << 10
	maxTail = shown + 64<<10
)

// Write satisfies io.Writer.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = t.cut || len(t.b)+len(b) > maxTail
	t.b = append(t.b, b[max(0, len(b)-maxTail):]...)
	t.b = append(t.b[:0], t.b[max(0, len(t.b)-maxTail):]...)
	return len(b), nil
}

// Text returns the last bytes, as far as window allows: it leaves out the rest of a secret that begins before them.
func (t *Tail) Text(window func(text string, start, end int, before, after bool) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(window(string(t.b), len(t.b)-shown, len(t.b), t.cut, false), "")
}
