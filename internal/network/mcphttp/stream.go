package mcphttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"waldo/internal/protocol/jsonrpc"
)

// Limits of one stream, and of its resumption.
const (
	maxStream   = 64 << 20 // bytes of the answers to one request
	maxResumes  = 20       // of one answer
	firstRetry  = time.Second
	longestWait = 30 * time.Second
)

// event is one event of a stream (WHATWG HTML §9.2).
type event struct {
	name  string
	data  []byte
	id    string
	hasID bool
	retry time.Duration // 0: it says nothing of it
}

// events reads a stream, and never holds more than one event of at most jsonrpc.MaxFrame.
type events struct {
	r    *bufio.Reader
	left int64 // bytes that may still be read
}

func newEvents(r io.Reader, most int64) *events {
	b := buffers.Get().(*bufio.Reader)
	b.Reset(r)
	return &events{r: b, left: most}
}

// buffers of streams that were read: each call that is answered on a stream needs one.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 32<<10) }}

// free gives the buffer back. An event holds copies.
func (e *events) free() {
	e.r.Reset(nil)
	buffers.Put(e.r)
	e.r = nil
}

var errFlood = errors.New("the server sends more than is read")

// next returns the next event with data. It drops an event that the end of the stream cuts.
func (e *events) next() (event, error) {
	var ev event
	said := false
	size := 0
	for {
		text, err := e.line(jsonrpc.MaxFrame - size)
		if err != nil {
			return event{}, err
		}
		size += len(text)
		if len(text) == 0 {
			if said {
				ev.data = bytes.TrimSuffix(ev.data, []byte{'\n'})
				return ev, nil
			}
			size = 0
			continue
		}
		field, value, _ := bytes.Cut(text, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			ev.data = append(append(ev.data, value...), '\n')
			said = true
		case "event":
			ev.name, said = string(value), true
		case "id":
			if bytes.IndexByte(value, 0) < 0 && len(value) <= 4096 {
				ev.id, ev.hasID, said = string(value), true, true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				ev.retry, said = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// line reads to the next line end, "
// " or "\r
// ". A "\r" alone does not end a line: servers do not send it.
func (e *events) line(most int) ([]byte, error) {
	var whole []byte
	for {
		part, err := e.r.ReadSlice('\n')
		e.left -= int64(len(part))
		if e.left < 0 {
			return nil, errFlood
		}
		if len(whole)+len(part) > most {
			return nil, fmt.Errorf("an event of more than %d bytes", jsonrpc.MaxFrame)
		}
		whole = append(whole, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(whole, []byte{'\n'}), []byte{'\r'}), nil
	}
}

// Events passes the data of each event of a stream of at most that many bytes on, until fn takes no more or returns an
// error. A stream that ends before is io.EOF.
func Events(r io.Reader, most int64, fn func(data []byte) (more bool, err error)) error {
	in := newEvents(r, most)
	defer in.free()
	for {
		ev, err := in.next()
		if err != nil {
			return err
		}
		if len(ev.data) == 0 {
			continue
		}
		if more, err := fn(ev.data); err != nil || !more {
			return err
		}
	}
}

// place is how far a stream was read.
type place struct {
	id    string
	retry time.Duration
}

// pump delivers what a stream holds until it ends or the answer that w waits for is there.
func (c *Conn) pump(
	ctx context.Context, body io.Reader, most int64, n int64, w *jsonrpc.Waiting, at *place,
) (jsonrpc.Message, bool, error) {
	in := newEvents(body, most)
	defer in.free()
	for {
		ev, err := in.next()
		if err != nil {
			return jsonrpc.Message{}, false, err
		}
		if ev.hasID {
			at.id = ev.id
		}
		if ev.retry > 0 {
			at.retry = min(ev.retry, longestWait)
		}
		if len(ev.data) == 0 || ev.name != "" && ev.name != "message" {
			continue
		}
		m, fault := jsonrpc.Parse(ev.data)
		if fault != nil {
			c.reads.Add(1)
			c.unasked(len(ev.data))
			c.pending.FailMalformed(ev.data, fault, n)
		} else {
			c.deliver(ctx, m, n)
		}
		if w == nil {
			continue
		}
		select {
		case m := <-w.Answer:
			return m, true, nil
		default:
		}
	}
}

// streamed waits for the answer to request n on a stream of its own, and takes the stream up again
// where it broke off, if the server has said how (2025-11-25 basic/transports, resumability).
func (c *Conn) streamed(
	ctx context.Context, n int64, resp *http.Response, w *jsonrpc.Waiting,
) (jsonrpc.Message, error) {
	at := place{retry: firstRetry}
	body := resp.Body
	for try := 0; ; try++ {
		m, done, err := c.pump(ctx, body, maxStream, n, w, &at)
		if a, ok := body.(*answer); ok && done {
			a.leave()
		}
		_ = body.Close()
		switch {
		case done:
			return m, nil
		case ctx.Err() != nil:
			return m, ctx.Err()
		case at.id == "" || !c.legacy() || try >= maxResumes || errors.Is(err, errFlood):
			return m, fmt.Errorf("the answer broke off: %w", err)
		}
		if body, err = c.resume(ctx, &at); err != nil {
			return m, fmt.Errorf("the answer broke off: %w", err)
		}
	}
}

// resume asks for the rest of a stream once the server's time to wait has passed.
func (c *Conn) resume(ctx context.Context, at *place) (io.ReadCloser, error) {
	if !sleep(ctx, at.retry) {
		return nil, ctx.Err()
	}
	more := http.Header{"Accept": {"text/event-stream"}}
	if at.id != "" {
		more.Set("Last-Event-ID", at.id)
	}
	c.mu.Lock()
	to := c.url
	c.mu.Unlock()
	resp, err := c.send(ctx, c.http, http.MethodGet, to, nil, more)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		_ = resp.Body.Close()
		return nil, StatusOf(resp)
	}
	return resp.Body, nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// openStream bounds the time that a session waits for the stream of the server's own messages.
const openStream = 3 * time.Second

// listen reads what a legacy server says of its own accord, where it offers a stream for that. It
// closes heard once the server has said whether it does.
func (c *Conn) listen(heard chan struct{}) {
	wait := place{}
	once := sync.OnceFunc(func() { close(heard) })
	defer once()
	for quiet := firstRetry; c.ctx.Err() == nil; quiet = min(2*quiet, longestWait) {
		body, err := c.resume(c.ctx, &wait)
		once()
		var status *Status
		switch {
		case errors.As(err, &status) && status.Code == http.StatusNotFound && c.begun():
			c.mu.Lock()
			c.session = ""
			c.mu.Unlock()
			c.cancel() // the session is forgotten
			return
		case errors.As(err, &status) && status.Code/100 == 4:
			return // it offers none
		case err == nil:
			_, _, err = c.pump(c.ctx, body, 1<<62, 0, nil, &wait)
			_ = body.Close()
			if err == nil || errors.Is(err, io.EOF) {
				quiet = firstRetry
			}
		}
		wait.retry = max(wait.retry, quiet)
	}
}

// TwoWay reports whether the server can ask during a call: it has a session, to which answers can come.
func (c *Conn) TwoWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != "" || c.old != nil
}

func (c *Conn) begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != ""
}

// old reports whether a status lets one suspect a server of HTTP+SSE (2024-11-05).
func old(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// openOld opens the one stream of HTTP+SSE, whose first event says where messages go: to the same
// server, or nowhere.
func (c *Conn) openOld(ctx context.Context) error {
	first := make(chan error, 1)
	c.closing.Go(func() {
		body, err := c.resume(c.ctx, &place{})
		if err != nil {
			first <- err
			return
		}
		defer body.Close()
		in := newEvents(body, 1<<62)
		ev, err := in.next()
		if err == nil {
			err = c.endpoint(ev)
		}
		first <- err
		if err == nil {
			_, _, _ = c.pump(c.ctx, in.r, 1<<62, 0, nil, &place{})
			c.cancel() // the connection needs its stream
		}
	})
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) endpoint(ev event) error {
	to, err := url.Parse(string(ev.data))
	if ev.name != "endpoint" || err != nil || len(ev.data) == 0 {
		return errors.New("the stream does not say where messages go")
	}
	to = c.url.ResolveReference(to)
	if to.Scheme != c.url.Scheme || to.Host != c.url.Host || to.User != nil {
		return errors.New("the stream leads to another server")
	}
	c.mu.Lock()
	c.old = to
	c.mu.Unlock()
	return nil
}
