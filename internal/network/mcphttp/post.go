package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"waldo/internal/protocol/jsonrpc"
)

// maxRefusals is how often one request is made again with another token.
const maxRefusals = 3

// post sends one message, with another token where the first is refused: a server that refuses has
// not read it. jsonrpc.ErrNotSent is in the chain of an error that came before anything was written.
func (c *Conn) post(ctx context.Context, method string, body []byte) (*http.Response, error) {
	by := c.http
	if method == "tools/call" {
		by = c.calls
	}
	c.mu.Lock()
	to := c.url
	if c.old != nil {
		to = c.old
	}
	c.mu.Unlock()
	return c.send(ctx, by, http.MethodPost, to, body, nil)
}

// send makes a request with the headers of MCP and of the operator.
func (c *Conn) send(
	ctx context.Context, by *http.Client, method string, to *url.URL, body []byte, more http.Header,
) (*http.Response, error) {
	for try := 0; ; try++ {
		token := ""
		if c.o.Auth != nil {
			var err error
			if token, err = c.o.Auth.Token(ctx); err != nil {
				return nil, unsent(err)
			}
		}
		resp, err := c.once(ctx, by, method, to, body, more, token)
		if err != nil || c.o.Auth == nil || resp.StatusCode != http.StatusUnauthorized &&
			resp.StatusCode != http.StatusForbidden {
			return resp, err
		}
		if try >= maxRefusals {
			return resp, nil
		}
		again, err := c.o.Auth.Refused(ctx, token, resp)
		if err != nil {
			_ = resp.Body.Close()
			return nil, unsent(err)
		}
		if !again {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
}

func (c *Conn) once(
	ctx context.Context, by *http.Client, method string, to *url.URL, body []byte, more http.Header, token string,
) (resp *http.Response, err error) {
	var written atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }}
	own, end := context.WithCancel(context.WithoutCancel(httptrace.WithClientTrace(ctx, trace)))
	stays := context.AfterFunc(ctx, end)
	defer func() {
		if resp == nil {
			stays()
			end()
		}
	}()
	req, err := http.NewRequestWithContext(own, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, unsent(err)
	}
	c.head(req, body)
	if c.o.Header != nil {
		named, err := c.o.Header()
		if err != nil {
			return nil, unsent(err)
		}
		maps.Copy(req.Header, named)
	}
	maps.Copy(req.Header, more)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if err := sound(req.Header); err != nil {
		return nil, unsent(err)
	}
	resp, err = by.Do(req)
	if err == nil {
		resp.Body = &answer{ReadCloser: resp.Body, stays: stays, end: end}
		return resp, nil
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL: it is the operator's, and appears elsewhere
	}
	if !written.Load() {
		err = unsent(err)
	}
	return nil, err
}

// answer is the body of a response. Its request outlives the context of the call, so that a stream can end by itself.
type answer struct {
	io.ReadCloser
	stays func() bool // frees it of the context of the call; false: that is done
	end   context.CancelFunc
	left  bool
}

// unended is how long a server may take to end a stream after its answer; then the connection is closed.
const unended = time.Second

// Close satisfies io.Closer.
func (a *answer) Close() error {
	if a.left {
		return nil
	}
	a.stays()
	defer a.end()
	return a.ReadCloser.Close()
}

// leave gives the server its time to end the stream, so that the connection serves the next request.
func (a *answer) leave() {
	if !a.stays() {
		return
	}
	a.left = true
	late := time.AfterFunc(unended, a.end)
	go func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(a.ReadCloser, 4<<10))
		late.Stop()
		_ = a.ReadCloser.Close()
		a.end()
	}()
}

// sound refuses invalid header values (RFC 9110 §5.5) before anything is dialled.
func sound(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value of the header %s holds a line break or another control character", name)
			}
		}
	}
	return nil
}

// head fills in the headers of MCP (2026-07-28 basic/transports/streamable-http, request metadata;
// 2025-11-25 basic/transports).
func (c *Conn) head(req *http.Request, body []byte) {
	c.mu.Lock()
	revision, session := c.revision, c.session
	c.mu.Unlock()
	h := req.Header
	h.Set("User-Agent", "waldo")
	h.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	if revision >= "2025-06-18" { // revisions are dates
		h.Set("MCP-Protocol-Version", revision)
	}
	if session != "" {
		h.Set("Mcp-Session-Id", session)
	}
	if body != nil {
		c.mirror(h, body, revision == jsonrpc.Modern)
	}
}

// sessionID returns the server's session id, or "" if it is not visible ASCII.
func sessionID(h http.Header) string {
	id := h.Get("Mcp-Session-Id")
	if len(id) > 4096 || strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return ""
	}
	return id
}

func isJSON(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "application/json"
}

// message reads a body that is one message.
func (c *Conn) message(resp *http.Response) (jsonrpc.Message, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, jsonrpc.MaxFrame+1))
	if err != nil {
		return jsonrpc.Message{}, err
	}
	if len(b) > jsonrpc.MaxFrame {
		return jsonrpc.Message{}, fmt.Errorf("an answer of more than %d bytes", jsonrpc.MaxFrame)
	}
	c.reads.Add(1)
	m, fault := jsonrpc.Parse(b)
	if fault != nil && m.Err == nil {
		return m, jsonrpc.Malformed(b, fault)
	}
	return m, nil
}

// answer reads the answer to request n out of a response that HTTP calls a success.
func (c *Conn) answer(ctx context.Context, n int64, resp *http.Response, w *jsonrpc.Waiting) (jsonrpc.Message, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	c.mu.Lock()
	old := c.old != nil
	c.mu.Unlock()
	switch {
	case old:
		select { // it comes on the one stream
		case m := <-w.Answer:
			return m, nil
		case <-ctx.Done():
			return jsonrpc.Message{}, ctx.Err()
		}
	case kind == "application/json":
		m, err := c.message(resp)
		if err == nil && (m.Method != "" || string(m.ID.Canonical()) != fmt.Sprint(n) && (m.Err == nil || !m.ID.IsZero())) {
			err = &jsonrpc.MalformedResponse{Why: "an answer to another request"}
		}
		return m, err
	case kind == "text/event-stream":
		return c.streamed(ctx, n, resp, w)
	}
	return jsonrpc.Message{},
		&jsonrpc.MalformedResponse{Why: fmt.Sprintf("an answer of the type %.60q: wanted application/json or "+
			"text/event-stream", kind)}
}
