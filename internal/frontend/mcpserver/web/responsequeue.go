package web

import (
	"context"
	"errors"
	"sync/atomic"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// responseQueue is one way to a client: the answer to a POST while it is being made, or the stream of a
// session. It is a gateway.Link. Frames are queued; the goroutine of the HTTP request writes them.
type responseQueue struct {
	out  chan []byte
	gone chan struct{}   // closed when the last writer has ended
	told atomic.Bool     // set before: the client has all that was said, so an answer to a request can still come
	asks *serverRequests // nil: the client takes no requests
}

func newResponseQueue(a *serverRequests) *responseQueue {
	return &responseQueue{out: make(chan []byte, 16), gone: make(chan struct{}), asks: a}
}

// Notify satisfies gateway.Link.
func (l *responseQueue) Notify(method string, params any) bool {
	b, err := jsonrpc.Request(strictjson.Value{}, method, params)
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

// rest hands over what is still queued.
func (l *responseQueue) rest(take func(frame []byte)) {
	for {
		select {
		case b := <-l.out:
			take(b)
		default:
			return
		}
	}
}

// Tell satisfies gateway.Link.
func (l *responseQueue) Tell(ctx context.Context, method string, params any) error {
	b, err := jsonrpc.Request(strictjson.Value{}, method, params)
	if err != nil {
		return err
	}
	return l.send(ctx, b)
}

func (l *responseQueue) send(ctx context.Context, b []byte) error {
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
func (l *responseQueue) Call(
	ctx context.Context, method string, params func(id int64) any, progress func(done, total float64),
) (strictjson.Value, error) {
	if l.asks == nil {
		return strictjson.Value{}, errors.Join(jsonrpc.ErrNotSent, errNoAsk)
	}
	return l.asks.call(ctx, l, method, params, progress)
}

// serverRequests are the requests to one legacy client that it has not answered yet.
type serverRequests struct {
	over <-chan struct{} // closed when the session has ended
	jsonrpc.Pending
}

// maxAsks is how many requests may wait for one client.
const maxAsks = 64

func (a *serverRequests) call(
	ctx context.Context, l *responseQueue, method string, params func(id int64) any, progress func(done, total float64),
) (strictjson.Value, error) {
	w := a.Add(maxAsks, progress)
	if w == nil {
		return strictjson.Value{}, errors.Join(jsonrpc.ErrNotSent, errors.New("the client has too many requests to answer"))
	}
	defer a.Drop(w)
	b, err := w.Frame(method, params)
	if err == nil {
		err = l.send(ctx, b)
	}
	if err != nil {
		return strictjson.Value{}, errors.Join(jsonrpc.ErrNotSent, err)
	}
	gone := l.gone
	for {
		select {
		case m := <-w.Answer:
			if m.Err != nil {
				return strictjson.Value{}, m.Err
			}
			return m.Result, nil
		case <-ctx.Done():
			l.Notify("notifications/cancelled", map[string]any{"requestId": w.N})
			return strictjson.Value{}, ctx.Err()
		case <-a.over:
			return strictjson.Value{}, jsonrpc.ErrClosed
		case <-gone:
			if !l.told.Load() {
				return strictjson.Value{}, jsonrpc.ErrClosed // the client did not return for its stream
			}
			gone = nil
		}
	}
}
