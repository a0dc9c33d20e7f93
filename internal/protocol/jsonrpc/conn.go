package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/budget"
	"waldo/internal/protocol/strictjson"
)

// ErrClosed: the other side is gone. Call cannot know how far it came with the request.
var ErrClosed = errors.New("the connection is closed")

// ErrNotSent: the request never left, so the other side began nothing.
var ErrNotSent = errors.New("the request was not sent")

// Options say how one side behaves. The zero Options answer every request with CodeNoMethod.
type Options struct {
	// Request answers a request. The next message is not held up by it, but for a moment, unless Inline says otherwise. An
	// *Error in the chain is the answer; any other error is answered as an internal one, unsaid.
	Request func(ctx context.Context, m Message) (any, error)
	// Arrive returns the context of a request that will be answered. It is called in the order in which they come, and
	// must be quick. The context that it gets ends with the answer. nil: nothing is added.
	Arrive func(ctx context.Context, method string) context.Context
	// Inline says which methods are answered in the order in which they come, before the next
	// message is read. They must be quick.
	Inline func(method string) bool
	// Notify takes a notification. It must not block.
	Notify func(m Message)
	// OnInvalid is called for each frame that is not a message. It must not block. With AnswerInvalid, the error answer
	// was sent before.
	OnInvalid func(e *Error)
	// OnUnexpected gets the size of each message that answers none of our requests, garbage included. It must not block.
	OnUnexpected func(bytes int)

	AnswerInvalid bool          // send an error for a frame that is not a message, as a server does
	SkipLong      bool          // step over a line longer than MaxFrame; otherwise it ends the connection
	Strict        bool          // a frame that is not a message ends the connection, after its error answer
	MaxAnswer     int           // bytes of one of our answers; 0: MaxFrame of this package
	MaxFrame      int           // bytes; 0: MaxFrame of this package
	MaxInFlight   int           // requests being answered; more are refused with CodeBusy; 0: 256
	MaxBytes      int           // bytes of the requests being answered; likewise; 0: 64 MiB
	Room          *budget.Gate  // memory for long requests while they are answered; nil: MaxBytes alone bounds them
	Who           string        // the principal whose share of Room they take
	MaxMessages   int           // in the life of the connection; one more ends it; 0: no bound
	Drain         time.Duration // how long answers may still take once the input has ended
}

// Conn is one side of a connection: it asks and it answers.
type Conn struct {
	o    Options
	in   *Reader
	w    io.Writer
	out  chan outgoing // frames on their way to w
	more chan struct{} // there is a rest to write
	done chan struct{} // closed when nothing more will be written
	end  sync.Once

	pending       Pending      // our requests
	workers       *WorkerPool  // answers theirs
	inlineRequest atomic.Int64 // of the request that the goroutine which reads answers itself; 0: it reads
	handOffTimer  *time.Timer  // has another goroutine read on when that takes long
	armed         atomic.Bool  // handOffTimer is set

	queued  atomic.Int64 // frames in out, or about to be
	writing sync.Mutex   // guards what follows, and w
	rest    []byte       // of a frame that w has taken in part
	at      func(b []byte) int

	mu       sync.Mutex
	inFlight map[string]context.CancelFunc // their requests, by id
	held     int                           // their requests whose answer is not being written yet
	bytes    int                           // of those
	reads    int64                         // messages read
	over     bool                          // no more requests are taken
	working  sync.WaitGroup
}

// outgoing is a frame to be written. An answer holds the place of its request until then. The zero outgoing is the last.
type outgoing struct {
	frame  []byte
	answer bool
	weight int // of the request that it answers
}

// maxSpare is how many goroutines of a connection wait for its next request.
const maxSpare = 4

// patience is how long the reading goroutine answers a request itself before another one takes over reading, which
// can take as long again. Most answers are ready by then without waking a goroutine, which was a fifth of a call's
// cost.
const patience = time.Millisecond

// errRelieved: read returns it when another goroutine has taken over reading.
var errRelieved = errors.New("another goroutine reads")

// New makes a connection; Serve runs it.
func New(r io.Reader, w io.Writer, o Options) *Conn {
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 256
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	done := make(chan struct{})
	return &Conn{o: o, in: NewReader(r, o.MaxFrame), w: w, out: make(chan outgoing, 64),
		more: make(chan struct{}, 1), done: done,
		workers: NewWorkerPool(maxSpare, done), inFlight: map[string]context.CancelFunc{}}
}

// Serve reads until the input ends, the output fails or ctx is done. Requests under way may finish within Drain. A
// goroutine may remain in Read: the owner of the input must close it.
func (c *Conn) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written, read := make(chan error, 1), make(chan error, 1)
	reading := func() {
		if err := c.read(ctx); err != errRelieved {
			read <- err
		}
	}
	seen := int64(0)
	c.handOffTimer = time.AfterFunc(time.Hour, func() {
		turn := c.inlineRequest.Load()
		switch {
		case turn == 0: // the last was answered
			c.armed.Store(false)
			if c.inlineRequest.Load() != 0 { // the next began just now
				c.arm()
			}
		case turn != seen: // it is younger than patience
			seen = turn
			c.handOffTimer.Reset(patience)
		case c.inlineRequest.CompareAndSwap(turn, 0):
			c.armed.Store(false)
			c.workers.Go(reading)
		default: // it was answered just now
			c.handOffTimer.Reset(patience)
		}
	})
	defer c.handOffTimer.Stop()
	go func() { written <- c.write() }()
	go reading()
	var err error
	select {
	case err = <-read:
		c.drain(ctx)
	case err = <-written:
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	c.finish(written)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Close ends the connection. Waiting calls return ErrClosed.
func (c *Conn) Close() { c.end.Do(func() { close(c.done) }) }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// drain waits for the answers that are still being made.
func (c *Conn) drain(ctx context.Context) {
	idle := make(chan struct{})
	go func() { c.working.Wait(); close(idle) }()
	t := time.NewTimer(c.o.Drain)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-ctx.Done():
	}
}

// finish writes what is queued, unless the writer is stuck or has ended, and ends the connection.
func (c *Conn) finish(written chan error) {
	stuck := time.After(time.Second)
	select {
	case c.out <- outgoing{}: // the last frame
		select {
		case <-written:
		case <-stuck:
		case <-c.done: // both cases of the outer select can be ready, and Serve has then read written
		}
	case <-stuck:
	case <-c.done:
	}
	c.Close()
}

func (c *Conn) write() error {
	for {
		var b outgoing
		last := false
		select {
		case b = <-c.out:
			last = b.frame == nil
		case <-c.more:
		case <-c.done:
			return nil
		}
		if err := c.put(b); err != nil {
			c.Close()
			return err
		}
		if last {
			return nil
		}
	}
}

// put writes what was left of a frame, and a frame from the queue.
func (c *Conn) put(b outgoing) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if len(c.rest) > 0 {
		if _, err := c.w.Write(c.rest); err != nil {
			return err
		}
		c.rest = nil
	}
	if b.frame == nil {
		return nil
	}
	c.hold(b, -1)
	_, err := c.w.Write(b.frame)
	c.queued.Add(-1)
	return err
}

// hold adds to the places that answers hold, or takes away. A place is free before the other side can see the answer:
// it can ask again at once. It is not free earlier, so that unread answers do not pile up.
func (c *Conn) hold(b outgoing, by int) {
	if b.answer {
		c.mu.Lock()
		c.held, c.bytes = c.held+by, c.bytes+by*b.weight
		c.mu.Unlock()
	}
}

// tryWrite writes a frame directly if the queue is empty and the write does not block. It avoids the writing goroutine.
// It reports whether the frame was handled.
func (c *Conn) tryWrite(b outgoing) bool {
	if c.queued.Load() > 0 || !c.writing.TryLock() {
		return false
	}
	defer c.writing.Unlock()
	if c.at == nil {
		c.at = direct(c.w)
	}
	if c.at == nil || c.queued.Load() > 0 || c.rest != nil {
		return false
	}
	c.hold(b, -1)
	n := c.at(b.frame)
	if n == 0 {
		c.hold(b, 1)
		return false
	}
	if n < len(b.frame) {
		c.rest = b.frame[n:]
		select {
		case c.more <- struct{}{}:
		default: // it looks anyway
		}
	}
	return true
}

func (c *Conn) read(ctx context.Context) error {
	for {
		line, err := c.in.Next()
		if errors.Is(err, ErrTooLong) {
			c.garbage(ctx, Message{}, Errorf(CodeParse, "a message of more than %d bytes", c.in.max))
			if c.o.SkipLong {
				if err = c.in.Skip(); err == nil {
					continue
				}
			}
		}
		if err != nil {
			return err
		}
		m, fault := Parse(line)
		c.mu.Lock()
		c.reads++
		many := c.o.MaxMessages > 0 && c.reads > int64(c.o.MaxMessages)
		c.mu.Unlock()
		if many {
			fault = Errorf(CodeBusy, "more than %d messages over one connection", c.o.MaxMessages)
		}
		switch {
		case fault != nil:
			if !c.in.Ended() { // otherwise it was broken off, and all who wait hear that the connection is over
				c.pending.FailMalformed(line, fault, 0)
			}
			c.unasked(len(line))
			c.garbage(ctx, m, fault)
			if c.o.Strict || many {
				return fault
			}
		case m.IsRequest():
			c.unasked(m.Size)
			if !c.request(ctx, m) {
				return errRelieved
			}
		case m.Method != "":
			c.unasked(m.Size)
			c.notification(m)
		default:
			if !c.pending.Answered(m) {
				c.unasked(m.Size)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (c *Conn) unasked(bytes int) {
	if c.o.OnUnexpected != nil {
		c.o.OnUnexpected(bytes)
	}
}

func (c *Conn) garbage(ctx context.Context, m Message, e *Error) {
	if c.o.AnswerInvalid {
		_ = c.send(ctx, Answer(m.ID, nil, e))
	}
	if c.o.OnInvalid != nil {
		c.o.OnInvalid(e)
	}
}

// request has a request answered. It reports whether the goroutine that calls it still is the one that reads.
func (c *Conn) request(ctx context.Context, m Message) bool {
	ctx, cancel := context.WithCancel(ctx)
	key := string(m.ID.Canonical())
	c.mu.Lock()
	_, twice := c.inFlight[key]
	busy := c.held >= c.o.MaxInFlight || c.bytes > 0 && c.bytes+m.Weight > c.o.MaxBytes
	late, alone, turn := c.over, c.held == 0 && !c.in.More(), c.reads
	var room *budget.Lease
	if c.long(m) {
		room = c.o.Room.Lease(c.o.Who)
	}
	if !twice && !busy && !late {
		c.inFlight[key], c.held, c.bytes = cancel, c.held+1, c.bytes+m.Weight
		c.working.Add(1)
		if c.o.Arrive != nil {
			ctx = c.o.Arrive(ctx, m.Method)
		}
	}
	c.mu.Unlock()
	switch {
	case late:
		cancel()
	case twice:
		_ = c.send(ctx, Answer(m.ID, nil, Errorf(CodeInvalid, "the id belongs to a request that is not answered yet")))
		cancel()
	case busy:
		_ = c.send(ctx, Answer(m.ID, nil, Errorf(CodeBusy, "too much is being answered already; ask again later")))
		cancel()
	case c.o.Inline != nil && c.o.Inline(m.Method):
		c.answer(ctx, cancel, key, m, room)
	case !alone || c.long(m):
		c.workers.Go(func() { c.answer(ctx, cancel, key, m, room) })
	default:
		c.inlineRequest.Store(turn)
		c.arm()
		c.answer(ctx, cancel, key, m, room)
		return c.inlineRequest.CompareAndSwap(turn, 0)
	}
	return true
}

// arm sets the timer that looks after the goroutine that reads, unless it is set. It is set once for many quick
// requests, since setting a timer can wake a thread.
func (c *Conn) arm() {
	if !c.armed.Swap(true) {
		c.handOffTimer.Reset(patience)
	}
}

// long reports whether a request needs room.
func (c *Conn) long(m Message) bool { return c.o.Room != nil && m.Size > weighed }

// answer computes the answer and sends it, unless the request was cancelled meanwhile. It gives back its room before the
// answer is sent: the other side may read late.
func (c *Conn) answer(ctx context.Context, cancel context.CancelFunc, key string, m Message, room *budget.Lease) {
	defer cancel()
	var early atomic.Bool
	var result any
	var err error = Errorf(CodeNoMethod, "no such method")
	if c.long(m) && room.Cover(ctx, int64(m.Weight)) != nil {
		err = Errorf(CodeBusy, "memory.busy: waldo's own memory for long messages is in use; ask again later")
	} else if c.o.Request != nil {
		result, err = c.o.Request(WithEarly(ctx, func(result any, err error) {
			early.Store(true)
			c.answered(ctx, key, m, result, err)
		}), m)
	}
	_ = room.Close() // never fails
	if !early.Load() {
		c.answered(ctx, key, m, result, err)
	}
}

// answered sends an answer.
func (c *Conn) answered(ctx context.Context, key string, m Message, result any, err error) {
	defer c.working.Done()
	c.mu.Lock()
	delete(c.inFlight, key) // the id is free again as soon as the other side can see the answer
	c.mu.Unlock()
	b := outgoing{answer: true, weight: m.Weight}
	if ctx.Err() != nil {
		c.hold(b, -1)
		return
	}
	var fault *Error
	if err != nil && !errors.As(err, &fault) {
		fault = Errorf(CodeInternal, "the request failed")
	}
	if fault != nil {
		result = nil
	}
	if b.frame = Answer(m.ID, result, fault); len(b.frame) > max(c.o.MaxAnswer, MaxFrame)+1 {
		b.frame = Answer(m.ID, nil, Errorf(CodeInternal, "the answer is longer than a message may be: ask for less"))
	}
	if c.enqueue(ctx, b) != nil {
		c.hold(b, -1)
	}
}

// Wait refuses further requests and returns when no request is under way.
func (c *Conn) Wait() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.working.Wait()
}

func (c *Conn) notification(m Message) {
	switch m.Method {
	case "notifications/cancelled":
		if id := m.Param("requestId"); !id.IsZero() {
			c.mu.Lock()
			cancel := c.inFlight[string(id.Canonical())]
			c.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		}
	case "notifications/progress":
		c.pending.Progress(m)
	default:
		if c.o.Notify != nil {
			c.o.Notify(m)
		}
	}
}

// send queues a frame. It waits while the other side does not read.
func (c *Conn) send(ctx context.Context, frame []byte) error {
	return c.enqueue(ctx, outgoing{frame: frame})
}

func (c *Conn) enqueue(ctx context.Context, b outgoing) error {
	select {
	case <-c.done:
		return ErrClosed // even if there is room in the queue
	default:
	}
	if c.tryWrite(b) {
		return nil
	}
	c.queued.Add(1)
	select {
	case c.out <- b:
		return nil
	case <-c.done:
		c.queued.Add(-1)
		return ErrClosed
	case <-ctx.Done():
		c.queued.Add(-1)
		return ctx.Err()
	}
}

// Tell sends a notification. It waits while the other side does not read.
func (c *Conn) Tell(ctx context.Context, method string, params any) error {
	b, err := Request(strictjson.Value{}, method, params)
	if err != nil {
		return err
	}
	return c.send(ctx, b)
}

// Notify sends a notification, or drops it when the other side does not read.
func (c *Conn) Notify(method string, params any) bool {
	frame, err := Request(strictjson.Value{}, method, params)
	if err != nil {
		return false
	}
	b := outgoing{frame: frame}
	if c.tryWrite(b) {
		return true
	}
	c.queued.Add(1)
	select {
	case c.out <- b:
		return true
	default:
		c.queued.Add(-1)
		return false
	}
}

// Call sends a request and returns its result, an *Error, a *MalformedResponse, ErrClosed or the error of ctx. If ctx
// ends first, Call sends a cancellation and drops a late answer. The params are made from the request's id, which is
// also its progress token; progress may be nil and must not block.
func (c *Conn) Call(
	ctx context.Context, method string, params func(id int64) any, progress func(done, total float64),
) (strictjson.Value, error) {
	w := c.pending.Add(0, progress)
	defer c.pending.Drop(w)
	b, err := w.Frame(method, params)
	if err == nil {
		err = c.send(ctx, b)
	}
	if err != nil {
		return strictjson.Value{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	select {
	case m := <-w.Answer:
		return m.Result, m.Fault()
	case <-ctx.Done():
		c.Notify("notifications/cancelled", map[string]any{"requestId": w.N})
		return strictjson.Value{}, ctx.Err()
	case <-c.done:
		select {
		case m := <-w.Answer: // it came just before the end
			return m.Result, m.Fault()
		default:
			return strictjson.Value{}, ErrClosed
		}
	}
}

// Reads returns the number of messages read so far.
func (c *Conn) Reads() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}
