package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"

	"waldo/internal/cli"
	"waldo/internal/cli/sandboxflags"
	"waldo/internal/core/delegation"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
	"waldo/internal/storage/sandboxes"
)

// client is who asks, and the delegation that its request names.
type client struct {
	who   call.Principal
	token string // empty: it names none
	proof call.Proof
}

// delegated returns the token that a request names, or why there is none to use.
func delegated(r *http.Request) (string, error) {
	switch given := r.Header.Values(web.HeaderDelegation); {
	case len(given) == 0:
		return "", nil
	case len(given) == 1 && given[0] != "":
		return given[0], nil
	}
	return "", wrong(403, "delegation.malformed", web.HeaderDelegation+" must be the token of one delegation")
}

// link returns the delegation of a request that makes no call: the one that it names, else that of this process; nil:
// there is none. One that the client cannot use is refused, on record as a call is.
func (s *server) link(ctx context.Context, by client) (*delegation.Link, error) {
	c := call.Call{ID: id.New(id.Call), Capability: "delegation", Principal: by.who, Channel: channel,
		Delegation: by.token, Proof: by.proof}
	under, why := s.h.InForce().Delegated.Under(ctx, c)
	if why != nil {
		var err error
		if c.Session, err = s.session(by.who); err == nil {
			_, err = s.h.Refuse(ctx, c, *why)
		}
		if err != nil {
			return nil, err
		}
		return nil, wrong(403, why.Code, "%s", why.Text)
	}
	if under == nil {
		return nil, nil
	}
	l := under.Leaf()
	return &l, nil
}

// operation answers one request of a client. body is its JSON, checked for twins and depth; empty: it has none.
type operation func(by client, r *http.Request, body []byte) (answer, error)

// answer is a status of HTTP and what is sent as JSON.
type answer struct {
	status int
	value  any
	retry  int // seconds, after which the same call can succeed; 0: waiting does not help
}

// problem is an error as RFC 9457 has it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	CallID string `json:"call_id,omitempty"`
	Effect string `json:"side_effect,omitempty"` // of that call
}

func (p *problem) Error() string { return p.Detail }

func wrong(status int, code, format string, a ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code,
		Detail: fmt.Sprintf(format, a...)}
}

// handler is one operation at its path.
type handler struct {
	s      *server
	answer operation
	calls  bool // it only makes a call, which asks the stop order and leaves a record
}

// ServeHTTP satisfies http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := h.s.h.InForce()
	who, refusal := now.Logins().Identify(r)
	if refusal != nil {
		refusal.Answer(w)
		return
	}
	if who == "" || !web.Known(w, r, who) {
		send(w, http.StatusServiceUnavailable, wrong(503, "busy", "too many connections are open; try again later"))
		return
	}
	by := client{who: who}
	if by.proof, refusal = h.s.h.Proof(who, r); refusal != nil {
		refusal.Answer(w)
		return
	}
	a, err := h.ask(by, w, r)
	var p *problem
	switch {
	case err == nil:
		if a.retry > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(a.retry))
		}
		send(w, a.status, a.value)
	case errors.As(err, &p):
		send(w, p.Status, p)
	case errors.Is(err, database.ErrAway):
		slog.Warn("a request over REST failed", "why", err)
		why := call.StoreAway()
		w.Header().Set("Retry-After", strconv.Itoa(why.RetryAfter))
		send(w, http.StatusServiceUnavailable, wrong(503, why.Code, "%s; nothing was done", why.Text))
	default:
		slog.Warn("a request over REST failed", "why", err)
		send(w, http.StatusInternalServerError, wrong(500, "internal", "waldo failed; its operator sees why"))
	}
}

// ask reads a request within its bounds and answers it.
func (h handler) ask(by client, w http.ResponseWriter, r *http.Request) (_ answer, err error) {
	if !h.calls && h.s.h.Sessions.Kept(by.who) {
		return answer{}, wrong(403, call.SessionStopped, "the operator has ended this session (waldo stop)")
	}
	if by.token, err = delegated(r); err != nil {
		return answer{}, err
	}
	n, release, err := h.s.hold(r.Context(), by.who, r)
	if err != nil {
		return answer{}, err
	}
	defer release()
	var body []byte
	if r.Method == http.MethodPost {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
			return answer{}, wrong(415, "media_type", "send application/json")
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxTime))
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, n)); err != nil {
			return answer{}, tooLong(err)
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		if _, err := strictjson.Parse(body); err != nil {
			return answer{}, wrong(400, "json", "%v", err)
		}
	}
	return h.answer(by, r, body)
}

// hold takes the memory of a request from the share of its principal.
func (s *server) hold(ctx context.Context, who call.Principal, r *http.Request) (n int64, release func(), err error) {
	if n = r.ContentLength; n < 0 {
		n = maxBody
	}
	if n > maxBody {
		return 0, nil, wrong(413, "too_long", "the request has more than %d bytes", maxBody)
	}
	release, err = s.held.Enter(ctx, string(who), max(n, 1<<10))
	if err != nil {
		return 0, nil, wrong(503, "busy", "too many requests are under way: %v", err)
	}
	return n, release, nil
}

func tooLong(err error) error {
	if much := (*http.MaxBytesError)(nil); errors.As(err, &much) {
		return wrong(413, "too_long", "the request has more than %d bytes", much.Limit)
	}
	return wrong(400, "body", "the body did not arrive: %v", err)
}

func send(w http.ResponseWriter, status int, v any) {
	kind := "application/json"
	if _, ok := v.(*problem); ok {
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v)
	}
}

// read decodes a body. Unknown members are refused.
func read(body []byte, into any) error {
	if err := strictjson.Only(body, into); err != nil {
		return wrong(400, "body", "%v", err)
	}
	return nil
}

// asked are the members that calls and runs share.
type asked struct {
	Approval string `json:"approval_id"` // of an earlier answer with status waiting
}

// callBody is the body of one call.
type callBody struct {
	asked
	Capability string          `json:"capability"`
	Arguments  json.RawMessage `json:"arguments"`
}

// call makes one call.
func (s *server) call(by client, r *http.Request, body []byte) (answer, error) {
	var in callBody
	if err := read(body, &in); err != nil {
		return answer{}, err
	}
	args := call.Args{}
	if len(in.Arguments) > 0 {
		var err error
		if args, err = call.ParseArgs(in.Arguments); err != nil {
			return answer{}, wrong(400, "arguments", "%v", err)
		}
	}
	return s.make(by, r, call.Call{Capability: call.Capability(in.Capability), Args: args, ApprovalID: in.Approval})
}

// run runs code in a fresh sandbox.
func (s *server) run(by client, r *http.Request, body []byte) (answer, error) {
	var in struct {
		asked
		Language string `json:"language"`
		Code     string `json:"code"`
	}
	if err := read(body, &in); err != nil {
		return answer{}, err
	}
	capability, field, err := sandboxflags.Language(in.Language, "")
	if err != nil || in.Language == "" {
		return answer{}, wrong(400, "language", "language: %.50q: python, javascript, typescript or shell", in.Language)
	}
	args, err := call.ArgsOf(map[string]any{field: in.Code})
	if err != nil {
		return answer{}, wrong(400, "code", "%v", err)
	}
	return s.make(by, r, call.Call{Capability: capability, Args: args, ApprovalID: in.Approval})
}

// keyOf returns the idempotency key of a request.
func keyOf(r *http.Request) string { return call.KeyOf(r.Header.Values("Idempotency-Key")...) }

// make passes a call through the pipeline, with the key of the request and in the session of its principal.
func (s *server) make(by client, r *http.Request, c call.Call) (answer, error) {
	n, err := s.session(by.who)
	if err != nil {
		return answer{}, err
	}
	c.ID, c.Principal, c.Session, c.Channel, c.Key = id.New(id.Call), by.who, n, channel, keyOf(r)
	c.Delegation, c.Proof, c.Trace = by.token, by.proof, web.TraceOf(r.Header)
	if why := s.h.Prepare(r.Context(), &c); why != nil {
		result, err := s.h.Refuse(r.Context(), c, *why)
		return ended(c, result, err)
	}
	result, err := s.h.Call(r.Context(), c)
	return ended(c, result, err)
}

// ended is the answer to a call. An error is waldo's own failure, which is logged.
func ended(c call.Call, r call.Result, err error) (answer, error) {
	if err == nil {
		return answerOf(r), nil
	}
	slog.Warn("a call over REST failed", "call", c.ID, "why", err)
	if r.Away() {
		return answerOf(r), nil
	}
	p := wrong(500, "internal", "waldo failed; its operator sees why")
	p.CallID, p.Effect = c.ID, r.Facts.SideEffect.String()
	return answer{}, p
}

// answerOf is a result as waldo call --json prints it. A call that waits for a human is accepted, not answered.
func answerOf(r call.Result) answer {
	a := answer{status: http.StatusOK, value: cli.ResultJSON(r)}
	retry := 0
	for _, why := range r.Why {
		retry = max(retry, why.RetryAfter)
	}
	switch {
	case r.Away():
		a.status, a.retry = http.StatusServiceUnavailable, retry
	case r.ApprovalID != "" || r.Status == facts.Waiting:
		a.status = http.StatusAccepted
	case r.Status == facts.Denied && retry > 0:
		a.status, a.retry = http.StatusTooManyRequests, retry
	case r.Status == facts.Denied:
		a.status = http.StatusForbidden
	case r.Status == facts.Failed && r.Facts.SideEffect == facts.None && retry > 0:
		a.status, a.retry = http.StatusServiceUnavailable, retry
	}
	return a
}

// tools lists or searches the tools of a client.
func (s *server) tools(by client, r *http.Request, _ []byte) (answer, error) {
	link, err := s.link(r.Context(), by)
	if err != nil {
		return answer{}, err
	}
	now := s.h.InForce()
	view, list := catalog.Viewer{Principal: by.who, Channel: channel}, now.Catalogue
	var found []*catalog.Entry
	if q := r.URL.Query().Get("q"); q != "" {
		found = list.Search(r.Context(), view, q, 0)
	} else {
		found = list.List(r.Context(), view)
	}
	items := []catalog.SearchResult{}
	for _, e := range found {
		if c, _ := now.Policy.Lookup(e.Capability); link.Lists(e.Capability, c.Danger) {
			items = append(items, e.Tell(catalog.Full))
		}
	}
	return answer{status: http.StatusOK, value: map[string]any{"items": items}}, nil
}

// inWords gives the errors of named sandboxes their status.
func inWords(err error) error {
	for _, row := range []struct {
		is     error
		status int
		code   string
	}{
		{sandboxes.ErrAbsent, 404, "not_found"}, {sandboxes.ErrExists, 409, "exists"}, {sandboxes.ErrName, 400, "name"},
		{sandboxes.ErrBusy, 409, "busy"}, {sandboxes.ErrPaused, 409, "paused"}, {sandboxes.ErrStopped, 409, "stopped"},
	} {
		if errors.Is(err, row.is) {
			return wrong(row.status, row.code, "%v", err)
		}
	}
	return err
}
