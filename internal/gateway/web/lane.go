package web

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"waldo/internal/jsonrpc"
	"waldo/internal/wire"
)

// lane is one way to a client: the answer to a POST while it is being made, or the stream of a
// session. It is a gateway.Link. Frames are queued; the goroutine of the HTTP request writes them.
type lane struct {
	out  chan []byte
	gone chan struct{} // closed when nobody writes them any more
	asks *asks         // nil: the client takes no requests
}

func newLane(a *asks) *lane {
	return &lane{out: make(chan []byte, 64), gone: make(chan struct{}), asks: a}
}

// Notify satisfies gateway.Link.
func (l *lane) Notify(method string, params any) bool {
	b, err := jsonrpc.Request(wire.Value{}, method, params)
	if err != nil {
		return false
	}
	select {
	case <-l.gone:
		return false
	default:
	}
	select {
	case l.out <- b:
		return true
	default:
		return false
	}
}

// Tell satisfies gateway.Link.
func (l *lane) Tell(ctx context.Context, method string, params any) error {
	b, err := jsonrpc.Request(wire.Value{}, method, params)
	if err != nil {
		return err
	}
	return l.send(ctx, b)
}

func (l *lane) send(ctx context.Context, b []byte) error {
	select {
	case <-l.gone:
		return jsonrpc.ErrClosed // even if there is room in the queue
	default:
	}
	select {
	case l.out <- b:
		return nil
	case <-l.gone:
		return jsonrpc.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNoAsk = errors.New("a client of this revision takes no requests")

// Call satisfies gateway.Link. The answer comes in a POST of its own.
func (l *lane) Call(ctx context.Context, method string, params func(id int64) any, progress func(done, total float64)) (wire.Value, error) {
	if l.asks == nil {
		return wire.Value{}, errors.Join(jsonrpc.ErrNotSent, errNoAsk)
	}
	return l.asks.call(ctx, l, method, params, progress)
}

// asks are the requests to one legacy client that it has not answered yet.
type asks struct {
	over <-chan struct{} // closed when the session has ended

	mu      sync.Mutex
	next    int64
	waiting map[string]*ask // by id
}

type ask struct {
	answer   chan jsonrpc.Message
	progress func(done, total float64)
}

// maxAsks is how many requests may wait for one client.
const maxAsks = 64

func (a *asks) call(ctx context.Context, l *lane, method string, params func(id int64) any, progress func(done, total float64)) (wire.Value, error) {
	q := &ask{answer: make(chan jsonrpc.Message, 1), progress: progress}
	a.mu.Lock()
	if len(a.waiting) >= maxAsks {
		a.mu.Unlock()
		return wire.Value{}, errors.Join(jsonrpc.ErrNotSent, errors.New("the client has too many requests to answer"))
	}
	a.next++
	n := a.next
	key := strconv.FormatInt(n, 10)
	a.waiting[key] = q
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, key)
		a.mu.Unlock()
	}()
	var body any
	if params != nil {
		body = params(n)
	}
	id, err := wire.Parse([]byte(key))
	if err != nil {
		return wire.Value{}, errors.Join(jsonrpc.ErrNotSent, err)
	}
	b, err := jsonrpc.Request(id, method, body)
	if err == nil {
		err = l.send(ctx, b)
	}
	if err != nil {
		return wire.Value{}, errors.Join(jsonrpc.ErrNotSent, err)
	}
	select {
	case m := <-q.answer:
		if m.Err != nil {
			return wire.Value{}, m.Err
		}
		return m.Result, nil
	case <-ctx.Done():
		l.Notify("notifications/cancelled", map[string]any{"requestId": n})
		return wire.Value{}, ctx.Err()
	case <-a.over:
		return wire.Value{}, jsonrpc.ErrClosed
	}
}

// answered hands an answer to the request that waits for it; any other is dropped.
func (a *asks) answered(m jsonrpc.Message) {
	key := string(m.ID.Canonical())
	a.mu.Lock()
	q := a.waiting[key]
	delete(a.waiting, key)
	a.mu.Unlock()
	if q != nil {
		q.answer <- m // has room for the one answer
	}
}

// progressed hands numbers to the request whose token they carry, while it waits.
func (a *asks) progressed(m jsonrpc.Message) {
	token := m.Param("progressToken")
	var done, total float64
	if token.IsZero() || m.Param("progress").Decode(&done) != nil {
		return
	}
	_ = m.Param("total").Decode(&total) // absent: nobody knows
	a.mu.Lock()
	q := a.waiting[string(token.Canonical())]
	a.mu.Unlock()
	if q != nil && q.progress != nil {
		q.progress(done, total)
	}
}
