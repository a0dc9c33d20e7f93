package web

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// replayBuffer stores the recent events of one legacy session's streams, so that a client that lost a connection can
// resume (MCP 2025-11-25 basic/transports, Last-Event-ID). It holds at most Limits.Replay bytes, and all trails
// together at most Limits.ReplayAll. The oldest events go first; events older than Limits.Resume are swept.
type replayBuffer struct {
	name string // of this session's events alone: no id of another session's is one of them
	most int64
	all  *atomic.Int64 // bytes of all trails
	cap  int64         // of all

	mu     sync.Mutex
	events []event // the oldest first
	bytes  int64
	tracks map[int]*stream
	next   int // number of the next track
	over   bool
}

// event is one message on a stream.
type event struct {
	track, seq int
	frame      []byte
	at         time.Time
}

// stream is one stream: number 0 is the session's own, the others are the answers to a POST each.
type stream struct {
	number int
	seq    int           // of the last event; 0: there was none
	kept   int           // events that are in the buffer
	done   bool          // no more will come
	more   chan struct{} // closed when an event has come, or the end
	taken  chan struct{} // closed when another connection takes the stream over; nil: none writes it
}

func (s *Server) newReplayBuffer() *replayBuffer {
	return &replayBuffer{
		name: rand.Text()[:10], most: s.o.Limits.Replay, all: &s.replay, cap: s.o.Limits.ReplayAll,
		tracks: map[int]*stream{0: newStream(0)}, next: 1,
	}
}

func newStream(number int) *stream { return &stream{number: number, more: make(chan struct{})} }

// begin makes a track for the answer to one request.
func (t *replayBuffer) begin() *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := newStream(t.next)
	t.next++
	t.tracks[k.number] = k
	return k
}

// own returns the session's own track, and where it is.
func (t *replayBuffer) own() (*stream, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tracks[0], t.tracks[0].seq
}

// add enters a message and returns its number. One that has no room is not kept: who resumes misses it.
func (t *replayBuffer) add(k *stream, frame []byte) (seq int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enter(k, frame)
}

// enter is add, the lock held.
func (t *replayBuffer) enter(k *stream, frame []byte) (seq int) {
	k.seq++
	t.keep(k, frame)
	close(k.more)
	k.more = make(chan struct{})
	return k.seq
}

// end enters the last message of a track, or stand in the place of one that is too long to be kept.
func (t *replayBuffer) end(k *stream, frame, stand []byte) (seq int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size(frame) > t.most/2 {
		frame = stand
	}
	seq = t.enter(k, frame)
	k.done = true // not before: making room for its end forgets no track
	if k.kept == 0 {
		delete(t.tracks, k.number)
	}
	return seq
}

// keep makes room for a message, the lock held.
func (t *replayBuffer) keep(k *stream, frame []byte) {
	n := size(frame)
	if t.over || n > t.most/2 {
		return
	}
	for len(t.events) > 0 && (t.bytes+n > t.most || t.all.Load()+n > t.cap) {
		t.drop()
	}
	if t.all.Add(n) > t.cap {
		t.all.Add(-n)
		return
	}
	t.bytes += n
	k.kept++
	t.events = append(t.events, event{k.number, k.seq, frame, time.Now()})
}

// size is the accounted cost of a message: its bytes and a fixed overhead.
func size(frame []byte) int64 { return int64(len(frame)) + 64 }

// drop forgets the oldest event, the lock held.
func (t *replayBuffer) drop() {
	e := t.events[0]
	t.events[0] = event{}
	t.events = t.events[1:]
	t.bytes -= size(e.frame)
	t.all.Add(-size(e.frame))
	if k := t.tracks[e.track]; k != nil {
		if k.kept--; k.kept == 0 && k.done {
			delete(t.tracks, e.track)
		}
	}
}

// expire drops events older than before: their resume period has ended.
func (t *replayBuffer) expire(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.events) > 0 && t.events[0].at.Before(before) {
		t.drop()
	}
}

// close forgets all.
func (t *replayBuffer) close() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.expire(time.Now().Add(time.Hour))
}

// id names an event for the client; 0 is the place before the first.
func (t *replayBuffer) id(k *stream, seq int) string {
	return fmt.Sprintf("%s-%d-%d", t.name, k.number, seq)
}

// place names where a track is now.
func (t *replayBuffer) place(k *stream) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id(k, k.seq)
}

// find returns the track of an id and how far the client has read it; nil: no event of this session has
// that id, or the track is forgotten.
func (t *replayBuffer) find(id string) (*stream, int) {
	_, rest, _ := strings.Cut(id, "-")
	number, seq, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(number)
	at, wrong := strconv.Atoi(seq)
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.tracks[n]
	if err != nil || wrong != nil || k == nil || at < 0 || at > k.seq || t.id(k, at) != id {
		return nil, 0
	}
	return k, at
}

// after returns the events of a track that come after one, and whether more will; then a channel that is
// closed when they have.
func (t *replayBuffer) after(k *stream, seq int) (events []event, done bool, more chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
		if e.track == k.number && e.seq > seq {
			events = append(events, e)
		}
	}
	return events, k.done, k.more
}

// has reports whether an event is in the buffer.
func (t *replayBuffer) has(k *stream, seq int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.events, func(e event) bool { return e.track == k.number && e.seq == seq })
}

// written reports whether a connection writes the track.
func (t *replayBuffer) written(k *stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return k.taken != nil
}

// take makes the caller the one who writes a track, until the channel is closed.
func (t *replayBuffer) take(k *stream) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.taken != nil {
		close(k.taken)
	}
	k.taken = make(chan struct{})
	return k.taken
}

func (t *replayBuffer) leave(k *stream, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.taken == mine {
		k.taken = nil
	}
}
