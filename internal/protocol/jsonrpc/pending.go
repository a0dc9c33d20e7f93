package jsonrpc

import (
	"fmt"
	"strconv"
	"sync"

	"waldo/internal/protocol/strictjson"
)

// Pending holds the unanswered requests of one side, for every transport. The zero Pending is empty.
type Pending struct {
	mu   sync.Mutex
	last int64
	byID map[string]*Waiting
}

// Waiting is a request whose answer is still to come.
type Waiting struct {
	N      int64        // its id, which is also its progress token
	Answer chan Message // has room for the one answer

	key      string
	stands   bool // it waits for as long as the connection lives
	progress func(done, total float64)
}

// Add numbers a request. It returns nil if most requests are waiting already; 0 means no bound.
// Progress may be nil and must not block.
func (p *Pending) Add(most int, progress func(done, total float64)) *Waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	if most > 0 && len(p.byID) >= most {
		return nil
	}
	if p.byID == nil {
		p.byID = map[string]*Waiting{}
	}
	p.last++
	w := &Waiting{N: p.last, Answer: make(chan Message, 1), key: strconv.FormatInt(p.last, 10), progress: progress}
	p.byID[w.key] = w
	return w
}

// Drop forgets a request: an answer that still comes is dropped.
func (p *Pending) Drop(w *Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byID, w.key)
}

// Frame makes the frame of the request. The params are made from its number; nil: it has none.
func (w *Waiting) Frame(method string, params func(id int64) any) ([]byte, error) {
	id, err := strictjson.Parse([]byte(w.key))
	if err != nil {
		return nil, err
	}
	var all any
	if params != nil {
		all = params(w.N)
	}
	w.stands = method == "subscriptions/listen"
	b, err := Request(id, method, all)
	if err == nil && len(b) > MaxFrame {
		err = fmt.Errorf("a request of %d bytes: at most %d are sent", len(b), MaxFrame)
	}
	return b, err
}

// Answered hands an answer to the request that waits for it; any other is dropped. An error without an
// id is for the request on whose stream it came, or that waits alone. An id that comes back as a text
// fails the request: no right answer will come. It reports whether a request waited.
func (p *Pending) Answered(m Message) bool {
	p.mu.Lock()
	w := p.byID[string(m.ID.Canonical())]
	if m.ID.IsZero() {
		w = p.of(m.Of)
	}
	if w != nil {
		delete(p.byID, w.key)
	} else if text, is := m.ID.Text(); is {
		p.fail(p.byID[text], &MalformedResponse{Why: "its id is a text, and a number was sent"})
	}
	p.mu.Unlock()
	if w != nil {
		w.Answer <- m // has room for the one answer
	}
	return w != nil
}

// Progress passes numbers to the waiting request whose token they carry. It drops the text of the notification, which
// is not redacted.
func (p *Pending) Progress(m Message) {
	token := m.Param("progressToken")
	if token.IsZero() {
		return
	}
	p.mu.Lock()
	w := p.byID[string(token.Canonical())]
	p.mu.Unlock()
	if w == nil || w.progress == nil {
		return
	}
	var done, total float64
	if m.Param("progress").Decode(&done) != nil {
		return
	}
	if t := m.Param("total"); !t.IsZero() && t.Decode(&total) != nil {
		return
	}
	w.progress(done, total)
}
