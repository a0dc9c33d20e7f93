// Package mcphttp is the client side of MCP over HTTP: streamable HTTP of every revision, and the HTTP+SSE of
// 2024-11-05 for older servers. A server's messages are bounded and parsed strictly. A message that could have
// arrived is never sent again.
package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// ErrForgotten is in the chain of Call's error when the server no longer knows the session: the
// connection has ended, and a new one begins a new session. That nothing was done is only its word.
var ErrForgotten = errors.New("the server has forgotten the session")

// Status is an HTTP error without a JSON-RPC message, from the server or a proxy before it.
type Status struct {
	Code  int
	After time.Duration // Retry-After of the answer; 0: absent
}

// StatusOf returns the status of an answer, with its Retry-After.
func StatusOf(resp *http.Response) *Status {
	return &Status{resp.StatusCode, retryAfter(resp.Header, time.Now())}
}

// Error names the status, and the wait that the server asks for.
func (s *Status) Error() string {
	if s.After > 0 {
		return fmt.Sprintf("HTTP status %d, and asks to come back in %v", s.Code, s.After)
	}
	return fmt.Sprintf("HTTP status %d", s.Code)
}

// Temporary reports whether a later request can succeed: too many requests, or a server behind a proxy is away
// (RFC 9110 §15.6, RFC 6585 §4).
func (s *Status) Temporary() bool {
	return s.Code == 429 || s.Code == 502 || s.Code == 503 || s.Code == 504
}

// longestAfter bounds the wait that a server asks for.
const longestAfter = 24 * time.Hour

// retryAfter reads Retry-After: seconds or a date (RFC 9110 §10.2.3). 0: absent or invalid.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, longestAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, min(at.Sub(now).Round(time.Second), longestAfter))
	}
	return 0
}

// Authorizer shows waldo to a server.
type Authorizer interface {
	// Token returns the bearer token to send; "" sends none.
	Token(ctx context.Context) (string, error)
	// Refused handles an answer 401 or 403 to a request that carried token. It reports whether another token is now
	// available, so that the request can be made again.
	Refused(ctx context.Context, token string, resp *http.Response) (again bool, err error)
}

// Options are what a connection is made of. URL and Transport are needed.
type Options struct {
	URL       string
	Transport http.RoundTripper           // see Transport
	Auth      Authorizer                  // nil: no token is sent
	Header    func() (http.Header, error) // more for the head of each request; nil: nothing
	Handlers  jsonrpc.Options             // Request and Notify take what the server asks and says
	Made      string                      // for the caller: a digest of the credentials; empty: unknown
}

// Conn is a connection to one server. It keeps its session, where the server gives one, and is over
// when the server forgets it.
type Conn struct {
	o       Options
	http    *http.Client
	calls   *http.Client // of tools/call: it follows no redirect, since the server could have acted before it
	ctx     context.Context
	cancel  context.CancelFunc
	pending jsonrpc.Pending // our requests
	reads   atomic.Int64
	asking  chan struct{} // one place for each of the server's requests being answered
	told    chan struct{} // one place for each notification on its way

	mu       sync.Mutex
	url      *url.URL // with the redirects of earlier requests
	revision string
	session  string
	old      *url.URL // of HTTP+SSE: where messages go
	inFlight map[string]context.CancelFunc
	headers  map[string][]mirrored // arguments of tools that are sent as headers too
	closing  sync.WaitGroup
}

// How much of a server's is handled at once.
const (
	maxAsking = 32
	maxTold   = 16
)

// New makes a connection. Nothing is sent before the first Call.
func New(o Options) (*Conn, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return nil, errors.New("not the address of a server: write it as https://host/path")
	}
	c := &Conn{o: o, url: u, asking: make(chan struct{}, maxAsking), told: make(chan struct{}, maxTold),
		inFlight: map[string]context.CancelFunc{}, headers: map[string][]mirrored{}}
	c.http = &http.Client{Transport: o.Transport, CheckRedirect: redirect}
	c.calls = &http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// maxHops is how many redirects of one request are followed.
const maxHops = 3

// redirect follows a server within itself: the same scheme, host and port, and the same method, so
// that neither a token nor an argument goes where the operator has not written.
func redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxHops:
		return errors.New("too many redirects")
	case req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || req.URL.User != nil:
		return errors.New("a redirect to another server is not followed")
	case req.Method != first.Method:
		return errors.New("a redirect that drops the message is not followed")
	}
	return nil
}

// Serve waits until the connection is over, and takes leave of the server's session.
func (c *Conn) Serve(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	c.cancel()
	c.closing.Wait()
	c.mu.Lock()
	session, old, at := c.session, c.old, c.url
	c.mu.Unlock()
	if session != "" && old == nil {
		bye, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if resp, err := c.send(bye, c.http, http.MethodDelete, at, nil, nil); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil
}

// Close ends the connection: waiting calls get jsonrpc.ErrClosed.
func (c *Conn) Close() { c.cancel() }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Reads returns how many messages have been read.
func (c *Conn) Reads() int64 { return c.reads.Load() }

// Speak says which revision of MCP is spoken from now on.
func (c *Conn) Speak(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = revision
}

// Call sends a request and waits for the answer, as jsonrpc.Conn.Call does. It never repeats a request that could
// have arrived, even if the answer was lost.
func (c *Conn) Call(
	ctx context.Context, method string, params func(id int64) any, progress func(done, total float64),
) (strictjson.Value, error) {
	if c.ctx.Err() != nil {
		return strictjson.Value{}, unsent(jsonrpc.ErrClosed)
	}
	w := c.pending.Add(0, progress)
	defer c.pending.Drop(w)
	body, err := w.Frame(method, params)
	if err != nil {
		return strictjson.Value{}, unsent(err)
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	m, err := c.ask(both, w.N, method, body, w)
	switch {
	case err == nil && m.Fault() != nil:
		return strictjson.Value{}, m.Fault()
	case err == nil:
		c.learn(method, m.Result)
		return m.Result, nil
	case ctx.Err() != nil:
		if c.legacy() { // of newer revisions, the end of the stream says it
			c.Notify("notifications/cancelled", map[string]any{"requestId": w.N})
		}
		return strictjson.Value{}, errors.Join(ctx.Err(), notSent(err))
	case c.ctx.Err() != nil && !errors.Is(err, ErrForgotten):
		return strictjson.Value{}, errors.Join(jsonrpc.ErrClosed, notSent(err))
	}
	return strictjson.Value{}, err
}

// unsent marks an error that came before anything was sent.
func unsent(err error) error { return fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err) }

// notSent keeps of an error that the request never left.
func notSent(err error) error {
	if errors.Is(err, jsonrpc.ErrNotSent) {
		return jsonrpc.ErrNotSent
	}
	return nil
}

func (c *Conn) legacy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision != jsonrpc.Modern
}

// ask sends a request and waits for its answer, wherever that comes.
func (c *Conn) ask(
	ctx context.Context, n int64, method string, body []byte, w *jsonrpc.Waiting,
) (jsonrpc.Message, error) {
	resp, err := c.post(ctx, method, body)
	if err != nil {
		return jsonrpc.Message{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		c.mu.Lock()
		if method == "initialize" {
			c.session = sessionID(resp.Header)
		}
		if c.old == nil && resp.Request != nil {
			c.url = resp.Request.URL
		}
		c.mu.Unlock()
		return c.answer(ctx, n, resp, w)
	}
	m, fault := c.fault(ctx, resp)
	if fault != nil && method == "initialize" && old(resp.StatusCode) {
		if err := c.openOld(ctx); err != nil {
			return m, errors.Join(fault, err)
		}
		return c.ask(ctx, n, method, body, w)
	}
	return m, fault
}

// fault reads an answer that is an error of HTTP: a session that is gone, or the error of JSON-RPC inside it, if there
// is one. 404 ends a session whatever is in its body (2025-11-25 basic/transports, Session Management). Some servers
// say 400 instead, which other faults have, too: a ping tells.
func (c *Conn) fault(ctx context.Context, resp *http.Response) (jsonrpc.Message, error) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != "" && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest && c.deaf(ctx)) {
		c.mu.Lock()
		c.session = "" // there is nothing to take leave of
		c.mu.Unlock()
		c.cancel()
		return jsonrpc.Message{}, ErrForgotten
	}
	if isJSON(resp.Header) {
		if m, err := c.message(resp); err == nil && m.Err != nil && m.Method == "" {
			return m, nil
		}
	}
	return jsonrpc.Message{}, StatusOf(resp)
}

// deaf reports whether the session has no answer to a ping but 400 or 404.
func (c *Conn) deaf(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	id, err := strictjson.Parse([]byte(`"waldo-ping"`))
	if err != nil {
		return false
	}
	body, err := jsonrpc.Request(id, "ping", nil)
	if err != nil {
		return false
	}
	resp, err := c.post(ctx, "ping", body)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusNotFound
}

// pingTime is how long a server may take over a ping of a session that can be lost.
const pingTime = 5 * time.Second

// Notify sends a notification in the background, or drops it when too many are on their way. The
// one that opens a session is sent before Notify returns: nothing may overtake it.
func (c *Conn) Notify(method string, params any) bool {
	body, err := jsonrpc.Request(strictjson.Value{}, method, params)
	if err != nil {
		return false
	}
	if method == "notifications/initialized" {
		c.tell(body)
		c.mu.Lock()
		old := c.old
		c.mu.Unlock()
		if old == nil {
			heard := make(chan struct{})
			c.closing.Go(func() { c.listen(heard) })
			select { // requests of the server before its stream exists are lost
			case <-heard:
			case <-time.After(openStream):
			case <-c.ctx.Done():
			}
		}
		return true
	}
	select {
	case c.told <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-c.told }()
		c.tell(body)
	}()
	return true
}

// tell posts a message without an answer: a notification, or our answer to a request of the server.
func (c *Conn) tell(body []byte) {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	if resp, err := c.post(ctx, "", body); err == nil {
		_ = resp.Body.Close()
	}
}

// deliver passes a message of the server to its receiver. n is our request on whose stream it came, or 0.
func (c *Conn) deliver(ctx context.Context, m jsonrpc.Message, n int64) {
	c.reads.Add(1)
	m.Of = n
	if m.Method != "" {
		c.unasked(m.Size)
	}
	switch {
	case m.IsRequest():
		c.request(ctx, m)
	case m.Method == "notifications/progress":
		c.pending.Progress(m)
	case m.Method == "notifications/cancelled":
		c.mu.Lock()
		cancel := c.inFlight[string(m.Param("requestId").Canonical())]
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case m.Method != "":
		if c.o.Handlers.Notify != nil {
			c.o.Handlers.Notify(m)
		}
	default:
		if !c.pending.Answered(m) {
			c.unasked(m.Size)
		}
	}
}

// unasked tells of a message that answers none of our requests.
func (c *Conn) unasked(bytes int) {
	if c.o.Handlers.OnUnexpected != nil {
		c.o.Handlers.OnUnexpected(bytes)
	}
}

// request answers a request of the server while the call it belongs to lasts. A server that sends too many at once is
// refused, and read more slowly.
func (c *Conn) request(ctx context.Context, m jsonrpc.Message) {
	key := string(m.ID.Canonical())
	ctx, cancel := context.WithCancel(ctx)
	select {
	case c.asking <- struct{}{}:
	default:
		cancel()
		c.tell(jsonrpc.Answer(m.ID, nil,
			jsonrpc.Errorf(jsonrpc.CodeBusy, "too much is being answered already; ask again later")))
		return
	}
	c.mu.Lock()
	c.inFlight[key] = cancel
	c.mu.Unlock()
	go func() {
		defer func() { <-c.asking }()
		defer cancel()
		var result any
		var err error = jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method")
		if c.o.Handlers.Request != nil {
			result, err = c.o.Handlers.Request(ctx, m)
		}
		c.mu.Lock()
		delete(c.inFlight, key)
		c.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		var fault *jsonrpc.Error
		if err != nil && !errors.As(err, &fault) {
			fault = jsonrpc.Errorf(jsonrpc.CodeInternal, "the request failed")
		}
		if fault != nil {
			result = nil
		}
		c.tell(jsonrpc.Answer(m.ID, result, fault))
	}()
}
