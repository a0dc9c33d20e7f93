package receive

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"waldo/internal/model/contract"
)

// local is the peer of every connection of this machine.
const local = "this machine"

// peerOf is the address at the other end of a request's connection, for IPv6 its network of 64 bits.
func peerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return local
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().IsLoopback() {
		return local
	}
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.String()
	}
	return a.String()
}

// bound is how many refused requests a peer may send.
func bound(peer string) contract.Rate {
	if peer == local {
		return contract.Rate{Calls: localRate, Per: usualWindow}
	}
	return contract.Rate{Calls: peerRate, Per: usualWindow}
}

// rates count events by name, at most some names at a time: those beyond share one count.
type rates struct {
	most int

	mu  sync.Mutex
	all map[string]*bucket
}

// bucket is a token bucket.
type bucket struct {
	left float64
	at   time.Time
}

func newRates(most int) *rates { return &rates{most: most, all: map[string]*bucket{}} }

// full returns how long until there is room for one more; 0: there is.
func (r *rates) full(name string, rate contract.Rate, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.of(name, rate, now)
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) * float64(rate.Per) / float64(rate.Calls))
}

// take counts one.
func (r *rates) take(name string, rate contract.Rate, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(name, rate, now).left--
}

// of returns the bucket of a name, filled up to now. The lock is held.
func (r *rates) of(name string, rate contract.Rate, now time.Time) *bucket {
	b := r.all[name]
	if b == nil && len(r.all) >= r.most {
		for other, old := range r.all {
			if now.Sub(old.at) > rate.Per {
				delete(r.all, other)
			}
		}
		if len(r.all) >= r.most {
			name = ""
			b = r.all[name]
		}
	}
	if b == nil {
		b = &bucket{left: float64(rate.Calls), at: now}
		r.all[name] = b
	}
	if d := now.Sub(b.at); d > 0 {
		b.left = min(b.left+float64(rate.Calls)*float64(d)/float64(rate.Per), float64(rate.Calls))
	}
	b.at = now // a clock that was set back fills nothing
	return b
}

// held counts the bytes of the bodies that are being read.
type held struct {
	mu   sync.Mutex
	all  int64
	each map[string]int64
}

// take reserves n bytes for a peer; one of another machine gets a quarter at most.
func (h *held) take(peer string, n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n++ // an empty body counts, too
	if h.all+n > maxHeld || peer != local && h.each[peer]+n > maxHeld/4 {
		return false
	}
	if h.each == nil {
		h.each = map[string]int64{}
	}
	h.all += n
	h.each[peer] += n
	return true
}

func (h *held) give(peer string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n++
	h.all -= n
	if h.each[peer] -= n; h.each[peer] <= 0 {
		delete(h.each, peer)
	}
}

// tallies record the first refusal of a kind at once, and the others as a number, once a minute: a flood does not
// fill the log.
type tallies struct {
	record func(Event)

	mu   sync.Mutex
	open map[[2]string]*tally // by hook and reason
}

type tally struct {
	first Event
	since time.Time
}

func (t *tallies) add(e Event, now time.Time) {
	t.mu.Lock()
	k := [2]string{e.Hook, e.Reason}
	one := t.open[k]
	var old Event
	if one != nil && now.Sub(one.since) < usualWindow && now.Sub(one.since) >= 0 {
		if one.first.Count++; one.first.Count == 1 {
			one.first.Peer = e.Peer
		}
		t.mu.Unlock()
		return
	}
	if one != nil {
		old = one.first
	}
	if t.open == nil {
		t.open = map[[2]string]*tally{}
	}
	t.open[k] = &tally{first: e, since: now}
	t.mu.Unlock()
	if old.Count > 0 {
		t.record(old)
	}
	e.Count = 1
	t.record(e)
}

// flush records what was counted.
func (t *tallies) flush() {
	t.mu.Lock()
	var due []Event
	for _, one := range t.open {
		if one.first.Count > 0 {
			due = append(due, one.first)
			one.first.Count = 0
		}
	}
	t.mu.Unlock()
	for _, e := range due {
		t.record(e)
	}
}
