package e2b

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/budget"
	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/sandboxes"
)

// channel is where the calls of this front end come from.
const channel = "e2b"

// Limits of one request.
const (
	maxBody   = 4 << 20          // bytes of JSON
	slowBody  = 30 * time.Second // in which it is there
	slowWrite = 30 * time.Second // in which a client takes what it is sent
)

// failure is an error as both E2B's HTTP APIs and Connect have it.
type failure struct {
	status int    // of HTTP
	code   string // of Connect
	text   string
}

func (f *failure) Error() string { return f.text }

// codes are the Connect codes of HTTP statuses.
var codes = map[int]string{
	400: "invalid_argument", 401: "unauthenticated", 403: "permission_denied", 404: "not_found", 409: "already_exists",
	413: "resource_exhausted", 415: "invalid_argument", 429: "resource_exhausted", 500: "internal", 501: "unimplemented",
	502: "unavailable", 504: "deadline_exceeded", 507: "resource_exhausted",
}

func fail(status int, format string, a ...any) *failure {
	return &failure{status: status, code: codes[status], text: fmt.Sprintf(format, a...)}
}

// failed converts any error. Why waldo itself failed is for the operator alone.
func failed(err error) *failure {
	var f *failure
	var much *http.MaxBytesError
	var full *budget.Full
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &much):
		return fail(413, "the body has more than %d bytes", much.Limit)
	case errors.As(err, &full):
		return fail(429, "the streams, folders and requests of this key use its share of waldo's memory; end some")
	case errors.Is(err, sandboxes.ErrAbsent), errors.Is(err, sandboxes.ErrNoPicture):
		return fail(404, "%v", err)
	case errors.Is(err, sandboxes.ErrBusy):
		return fail(429, "%v", err)
	case errors.Is(err, sandboxes.ErrPaused), errors.Is(err, sandboxes.ErrStopped):
		return fail(502, "%v", err)
	}
	slog.Warn("a request of an E2B client failed", "why", err)
	return fail(500, "waldo failed; its operator sees why")
}

// server answers the clients of E2B.
type server struct {
	h    *app.App
	m    *sandboxes.Manager
	key  []byte // of the tokens of sandboxes
	mux  *http.ServeMux
	ctx  context.Context // of commands: they outlive the requests that start them
	stop context.CancelFunc
	room // of keys and sandboxes

	shared *session.Shared // sessions of refused requests that are no calls

	signers sync.Map // tokens of files by the id of their sandbox: what addresses can be signed with

	making sync.Mutex // held while a sandbox or its body is made, so that none is above the limit
	mu     sync.Mutex
	live   map[string]*live // by the id of their sandbox: what this process has of it

	watches map[watchKey]*watch // folders that streams watch
}

func newServer(ctx context.Context, h *app.App) (*server, error) {
	s := &server{h: h, m: h.NamedSandboxes(), mux: http.NewServeMux(), live: map[string]*live{},
		shared: h.SharedSessions(""), room: newRoom(), watches: map[watchKey]*watch{}}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	err := h.Store.Modify(ctx, "e2b.key", "key", func(old string, ok bool) (string, bool, error) {
		if b, err := hex.DecodeString(old); ok && err == nil && len(b) == sha256.Size {
			s.key = b
			return old, true, nil
		}
		s.key = make([]byte, sha256.Size)
		_, _ = rand.Read(s.key) // never fails: crypto/rand ends the process instead
		return hex.EncodeToString(s.key), true, nil
	})
	if err == nil {
		err = s.upgrade(ctx)
	}
	if err == nil {
		_, err = s.sign(ctx)
	}
	s.route()
	return s, err
}

// close ends every command.
func (s *server) close() {
	s.stop()
	s.mu.Lock()
	all := s.live
	s.live = map[string]*live{}
	s.mu.Unlock()
	for _, b := range all {
		s.shut(b)
	}
	s.shared.Close()
}

func (s *server) route() {
	for pattern, f := range map[string]func(call.Principal, http.ResponseWriter, *http.Request) error{
		"POST /v2/sandboxes":              s.create,
		"GET /v2/sandboxes":               s.list,
		"POST /v2/sandboxes/{id}/connect": s.connect,
		"GET /sandboxes/{id}":             s.get,
		"DELETE /sandboxes/{id}":          s.kill,
		"POST /sandboxes/{id}/timeout":    s.timeout,
		"PUT /sandboxes/{id}/network":     s.narrow,
		"GET /sandboxes/{id}/metrics":     s.metrics,
		"POST /sandboxes/{id}/pause":      s.pause,
		"POST /sandboxes/{id}/snapshots":  s.snapshot,
		"POST /sandboxes/{id}/fork":       s.fork,
		"GET /snapshots":                  s.snapshots,
		"GET /templates":                  s.templates,
		"GET /templates/aliases/{alias}":  s.template,
		"DELETE /templates/{id}":          s.forget,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			who, err := s.identify(r)
			if err == nil {
				err = known(r, who)
			}
			if err == nil {
				err = s.kept(r.Context(), who)
			}
			if err == nil {
				err = f(who, w, r)
			}
			if err != nil {
				tell(w, failed(err))
			}
		})
	}
	s.routeEnvd()
	s.routeFiles()
	s.routeCode()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.identify(r); err != nil {
			tell(w, failed(err))
			return
		}
		tell(w, fail(501, "waldo does not have %s %.100s: docs/e2b.md lists what it has", r.Method, r.URL.Path))
	})
}

// ServeHTTP satisfies http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if web.Full(w, r) {
		return
	}
	if len(r.Header[web.HeaderDelegation]) > 0 {
		tell(w, fail(400, "%s is a header of REST; hint: waldo --delegation TOKEN e2b", web.HeaderDelegation))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// identify returns the holder of the API key, which is a token of waldo.
func (s *server) identify(r *http.Request) (call.Principal, error) {
	asked := r.Clone(r.Context())
	asked.Header = http.Header{"Authorization": {"Bearer " + r.Header.Get("X-Api-Key")}}
	who, refusal := s.h.InForce().Logins().Identify(asked)
	if refusal != nil || !strings.HasPrefix(string(who.Local()), "token:") {
		return "", fail(401, "the API key is not a token of this waldo; hint: waldo token NAME makes one, E2B_API_KEY names it")
	}
	return who, nil
}

// known counts the connection of a request as one of a client, whose share can be full.
func known(r *http.Request, who call.Principal) error {
	if web.Knows(r, who) {
		return nil
	}
	return fail(429, "too many connections of this key are open")
}

// kept refuses a principal that the operator keeps out, and every one once the delegation of this process has ended.
// That is on record, as for a call.
func (s *server) kept(ctx context.Context, who call.Principal) error {
	if s.h.Sessions.Kept(who) {
		return fail(403, "%s: the operator has ended this session (waldo stop)", call.SessionStopped)
	}
	c := call.Call{ID: id.New(id.Call), Capability: "delegation", Principal: who, Channel: channel}
	_, why := s.h.InForce().Delegated.Under(ctx, c)
	if why == nil {
		return nil
	}
	n, err := s.shared.Enter(who)
	if err != nil {
		return err
	}
	defer s.shared.Leave(n)
	c.Session = n
	if _, err = s.h.Refuse(ctx, c, *why); err != nil {
		return err
	}
	return fail(403, "%s: %s", why.Code, why.Text)
}

// admitted reports whether the owner of a sandbox is still let in: an operator takes a token back by deleting it.
func (s *server) admitted(owner string) bool {
	g := s.h.InForce().Config.Gateway
	name, ok := strings.CutPrefix(string(call.Principal(owner).Local()), "token:")
	return ok && g.Tokens[name] != "" && g.Tenants.Holds(call.Principal(owner))
}

// The uses of the tokens of a sandbox.
const (
	forFiles   = "envd"
	forTraffic = "traffic"
)

// token returns the token of a sandbox for a use. It is derived, so none is stored.
func (s *server) token(sandbox, use string) string {
	m := hmac.New(sha256.New, s.key)
	_, _ = io.WriteString(m, use+":"+sandbox) // never fails
	return hex.EncodeToString(m.Sum(nil))
}

// holds compares in constant time.
func (s *server) holds(got, sandbox, use string) bool {
	return got != "" && hmac.Equal([]byte(got), []byte(s.token(sandbox, use)))
}

// public and internal convert the id of a sandbox: E2B's is a label of a host name.
func public(sandbox string) string { return strings.TrimPrefix(sandbox, string(id.Sandbox)) }

func internal(sandbox string) (string, error) {
	if full := string(id.Sandbox) + sandbox; id.Is(id.Sandbox, full) {
		return full, nil
	}
	return "", fail(404, "no such sandbox")
}

// read reads a JSON body, strictly: a field that is not known could be a restriction that would not hold.
func read(w http.ResponseWriter, r *http.Request, out any) error {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowBody)) // a server of HTTP/1 can
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if much := (*http.MaxBytesError)(nil); errors.As(err, &much) {
		return err
	}
	if err != nil {
		return fail(400, "the body was not there within %v", slowBody)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if len(b) == 0 {
		b = []byte("{}")
	}
	return parse(b, out)
}

// parse reads JSON of a client.
func parse(b []byte, out any) error {
	v, err := strictjson.Parse(b)
	if err != nil {
		return fail(400, "the body is no JSON: %v", err)
	}
	if _, ok := v.Members(); !ok {
		return fail(400, "the body is no JSON object")
	}
	if err := strictjson.Only(b, out); err != nil {
		return fail(400, "waldo does not take this body: %v; hint: docs/e2b.md lists the versions of the SDK that are tested", err)
	}
	return nil
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowWrite))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client can be gone
	return nil
}

// tell writes an error as the control plane and envd have it.
func tell(w http.ResponseWriter, f *failure) {
	_ = answer(w, f.status, map[string]any{"code": f.status, "message": f.text})
}

// record is that of one request that is no call: of a sandbox's life, or of its files.
type record = app.SandboxRecord

func (s *server) record(ctx context.Context, r record) error { return s.h.RecordSandbox(ctx, r) }
