package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"waldo/internal/budget"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
)

// Host is the part of waldo that the front end uses. Its answers are those of the configuration in force.
type Host interface {
	Kernel
	Identify(r *http.Request) (call.Principal, *web.Refusal)
	Gateway() contract.Gateway
	// Skills returns what contracts expose: what a principal can call, or all of it for the empty principal.
	Skills(ctx context.Context, p call.Principal) []Skill
	// Enter returns the id of the delegation of a token, or why the principal cannot use it with this proof.
	Enter(ctx context.Context, token string, proof call.Proof, p call.Principal) (string, *call.Reason)
	// Proof returns the proof of possession of a principal's request.
	Proof(who call.Principal, r *http.Request) (call.Proof, *web.Refusal)
	// Deliver takes a signed answer to an open question of this waldo, and PassDown one to a question of a peer.
	Deliver(ctx context.Context, approvalID string, answer json.RawMessage) error
	PassDown(ctx context.Context, approvalID string, answer json.RawMessage) error
	Version() string
}

// Limits of requests.
const (
	maxBody     = 4 << 20  // of one request
	maxHeld     = 64 << 20 // of all requests that are being read and answered
	maxWaits    = 256      // requests that wait for a task and streams, of all clients
	maxWaitEach = 32       // of one principal
	readTime    = 30 * time.Second
	writeTime   = 30 * time.Second
	keepAlive   = 15 * time.Second
	maxAge      = 60 // of the card, in seconds
)

// server is the front end: the agent card, JSON-RPC at /a2a, and HTTP+JSON below it.
type server struct {
	host   Host
	tasks  *tasks
	runner *runner
	pushes *pusher
	signer *signer
	held   *budget.Gate
	waits  *budget.Gate
	public shown
	life   context.Context // ends with waldo; streams end with it
	end    context.CancelFunc

	mu     sync.Mutex
	signed map[string][]byte // cards by the digest of what is signed
}

func newServer(h Host, t *tasks, r *runner, p *pusher, s *signer) *server {
	out := &server{host: h, tasks: t, runner: r, pushes: p, signer: s, signed: map[string][]byte{},
		held:  budget.New(budget.Limits{Memory: maxHeld, Share: maxHeld / 4, Each: 1000, Wait: time.Second}),
		waits: budget.New(budget.Limits{Memory: maxWaits, Share: maxWaitEach, Each: maxWaitEach})}
	out.life, out.end = context.WithCancel(context.Background())
	return out
}

// ServeHTTP answers at the paths of A2A.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/agent-card.json":
		s.card(w, r)
		return
	case "/a2a/jwks.json":
		s.keys(w, r)
		return
	}
	who, refusal := s.host.Identify(r)
	if refusal != nil {
		refusal.Answer(w)
		return
	}
	if who == "" || !web.Known(w, r, who) {
		http.Error(w, "too many connections are open; try again later", http.StatusServiceUnavailable)
		return
	}
	proof, refusal := s.host.Proof(who, r)
	if refusal != nil {
		refusal.Answer(w)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), proven{}, proof))
	if r.URL.Path == "/a2a" || r.URL.Path == "/a2a/" {
		s.rpc(w, r, who)
		return
	}
	s.rest(w, r, who)
}

// proven is the context key of the proof of possession of a request.
type proven struct{}

// card answers with the public agent card, for anybody.
func (s *server) card(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the agent card is read by GET", http.StatusMethodNotAllowed)
		return
	}
	skills := s.public.get(r.Context(), func(ctx context.Context) []Skill { return s.host.Skills(ctx, "") })
	b, err := s.sign(cardOf(s.host.Version(), s.base(r), s.host.Gateway(), skills, false), s.base(r))
	if err != nil {
		s.broken(w, err)
		return
	}
	serveCached(w, r, b, "public, max-age="+strconv.Itoa(maxAge))
}

// keys answers with the keys that verify the card.
func (s *server) keys(w http.ResponseWriter, r *http.Request) {
	b, err := s.signer.keySet()
	if err != nil {
		s.broken(w, err)
		return
	}
	serveCached(w, r, b, "public, max-age="+strconv.Itoa(maxAge))
}

func (s *server) broken(w http.ResponseWriter, err error) {
	slog.Error("the agent card cannot be made", "why", err)
	http.Error(w, "the agent card cannot be made now", http.StatusInternalServerError)
}

// serveCached answers with JSON that a client may keep (RFC 9111): by its ETag it need not read it again.
func serveCached(w http.ResponseWriter, r *http.Request, b []byte, control string) {
	h := w.Header()
	tag := `"` + strings.TrimPrefix(strictjson.Digest(b), "sha256:")[:32] + `"`
	h.Set("Cache-Control", control)
	h.Set("ETag", tag)
	for _, had := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if had = strings.TrimPrefix(strings.TrimSpace(had), "W/"); had == tag || had == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// base is the address of this server as clients know it: of gateway.url, or of the Host that was checked.
func (s *server) base(r *http.Request) string {
	if u, err := url.Parse(s.host.Gateway().URL); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return "http://" + r.Host
}

// sign signs a card, once for each content.
func (s *server) sign(card map[string]any, base string) ([]byte, error) {
	b, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := strictjson.Digest(b)
	if done := s.signed[digest]; done != nil {
		return done, nil
	}
	done, err := s.signer.sign(card, base+"/a2a/jwks.json")
	if err == nil {
		if len(s.signed) >= 64 {
			clear(s.signed)
		}
		s.signed[digest] = done
	}
	return done, err
}

// spoken returns an error unless the request is of a version that is spoken here (§3.6.2). It answers with the version
// and the extensions that are in use.
func spoken(w http.ResponseWriter, r *http.Request) *fault {
	versions := r.Header.Values("A2A-Version")
	if q := r.URL.Query()["A2A-Version"]; len(versions) == 0 {
		versions = q
	}
	w.Header().Set("A2A-Version", version)
	if len(r.Header[web.HeaderDelegation]) > 0 {
		return badParams.says("%s is a header of REST: write the token in message.metadata, as %s", web.HeaderDelegation, tokenMember)
	}
	switch {
	case len(versions) == 0 || len(versions) == 1 && strings.TrimSpace(versions[0]) == "":
		return noVersion.says("a request without A2A-Version is of version 0.3, and waldo speaks %s: send A2A-Version: %s",
			version, version)
	case len(versions) > 1 || strings.TrimSpace(versions[0]) != version:
		return noVersion.says("version %q of A2A is not spoken here: send A2A-Version: %s", printable(versions[0]), version)
	}
	for _, list := range r.Header.Values("A2A-Extensions") {
		for _, uri := range strings.Split(list, ",") {
			if strings.TrimSpace(uri) == Arguments {
				w.Header().Set("A2A-Extensions", Arguments)
			}
		}
	}
	return nil
}

// body reads a request of JSON. The lease covers it and the values that it holds until it is closed.
func (s *server) body(w http.ResponseWriter, r *http.Request, who call.Principal, types ...string) (
	v strictjson.Value, raw []byte, lease *budget.Lease, f *fault,
) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(types, kind) {
		return v, nil, nil, contentType.says("the body of a request is %s", strings.Join(types, " or "))
	}
	size := r.ContentLength
	if size > maxBody {
		return v, nil, nil, &fault{jsonrpc.CodeInvalid, http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", "TOO_LARGE",
			"a request has at most " + strconv.Itoa(maxBody) + " bytes"}
	}
	if size < 0 {
		size = maxBody
	}
	lease = s.held.Lease(string(who))
	if lease.Cover(r.Context(), size) != nil {
		return v, nil, nil, tooMuch.says("too much is being answered already; ask again later")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime))
	raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		_ = lease.Close()
		return v, nil, nil, &fault{jsonrpc.CodeInvalid, http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT", "TOO_LARGE",
			"the request was not read whole: it has at most " + strconv.Itoa(maxBody) + " bytes"}
	}
	if lease.Cover(r.Context(), int64(strictjson.Weight(raw))) != nil {
		return v, nil, nil, tooMuch.says("too much is being answered already; ask again later")
	}
	if v, err = strictjson.Parse(raw); err != nil {
		_ = lease.Close()
		return v, nil, nil, badJSON.says("not one strict JSON value: %s", printable(err.Error()))
	}
	return v, raw, lease, nil
}

// rpc answers one request of JSON-RPC (§9).
func (s *server) rpc(w http.ResponseWriter, r *http.Request, who call.Principal) {
	out := answer{w: w, r: r, rpc: true}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send JSON-RPC by POST", http.StatusMethodNotAllowed)
		return
	}
	_, raw, lease, f := s.body(w, r, who, "application/json", mediaType)
	if f != nil {
		out.fail(f)
		return
	}
	defer func() { _ = lease.Close() }()
	m, bad := jsonrpc.Parse(raw)
	out.id = m.ID
	if bad != nil {
		out.fail(&fault{bad.Code, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_REQUEST", bad.Message})
		return
	}
	if !m.IsRequest() {
		out.fail(badRequest.says("a request of A2A has an id and a method"))
		return
	}
	if f := spoken(w, r); f != nil {
		out.fail(f)
		return
	}
	s.answer(out, who, m.Method, m.Params, lease)
}

// answer carries out one operation, and answers it by its binding.
func (s *server) answer(out answer, who call.Principal, method string, params strictjson.Value, lease *budget.Lease) {
	waits := method == "SendMessage" || method == "SendStreamingMessage" || method == "SubscribeToTask"
	if waits {
		leave, err := s.waits.Enter(out.r.Context(), string(who), 1)
		if err != nil {
			out.fail(tooMuch.says("%d requests of this principal wait for a task already", maxWaitEach))
			return
		}
		defer leave()
	}
	reply, f := s.operate(out.r, who, method, params)
	_ = lease.Close()
	switch {
	case f != nil:
		out.fail(f)
	case reply.stream != nil:
		s.stream(out, who, reply)
	case reply.wait != nil:
		j := s.await(out.r.Context(), who, reply.wait)
		out.send(map[string]any{"task": j.view(reply.history, true)})
	default:
		out.send(reply.body)
	}
}

// answer writes to a client by one of the bindings.
type answer struct {
	w   http.ResponseWriter
	r   *http.Request
	rpc bool
	id  strictjson.Value
}

func (a answer) encoded(v any) []byte {
	if a.rpc {
		return jsonrpc.Answer(a.id, v, nil)
	}
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("{}")
	}
	return b
}

func (a answer) write(status int, kind string, b []byte) {
	_ = http.NewResponseController(a.w).SetWriteDeadline(time.Now().Add(writeTime))
	a.w.Header().Set("Content-Type", kind)
	a.w.WriteHeader(status)
	_, _ = a.w.Write(b)
	_ = http.NewResponseController(a.w).SetWriteDeadline(time.Time{})
}

func (a answer) send(v any) { a.write(http.StatusOK, "application/json", a.encoded(v)) }

func (a answer) fail(f *fault) {
	switch {
	case a.rpc && f.status != http.StatusRequestEntityTooLarge && f.status != http.StatusTooManyRequests:
		a.write(http.StatusOK, "application/json", f.rpc(a.id))
	case a.rpc:
		a.write(f.status, "application/json", f.rpc(a.id))
	default: // google.rpc.Status; a2a-go reads it of this type alone
		a.write(f.status, "application/json", a.encoded(f.body()))
	}
}

// view is a task as a client asked for it: history messages at most (nil: all).
func (j *job) view(history *int, artifacts bool) Task {
	t := j.Task
	if history != nil {
		n := min(max(*history, 0), len(t.History))
		t.History = t.History[len(t.History)-n:]
	}
	if !artifacts {
		t.Artifacts = nil
	}
	return t
}

// await waits until a task has ended or needs an answer, the client has gone, or waldo ends.
func (s *server) await(ctx context.Context, who call.Principal, j *job) *job {
	rung, stop := s.runner.changed.listen(j.ID)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		now, err := s.tasks.get(ctx, who, j.ID)
		if err != nil {
			return j
		}
		if j = now; j.Status.State.rests() {
			return j
		}
		select {
		case <-rung:
		case <-tick.C: // another waldo can have changed it
		case <-ctx.Done():
			return j
		case <-s.life.Done():
			return j
		}
	}
}

// stream sends the changes of a task as server-sent events until it has ended; with reply.rests also until it needs an
// answer. A client whose login ends gets no more.
func (s *server) stream(out answer, who call.Principal, reply reply) {
	ctx, w := out.r.Context(), out.w
	rung, stop := s.runner.changed.listen(reply.stream.ID)
	defer stop()
	tick, alive := time.NewTicker(every), time.NewTicker(keepAlive)
	defer tick.Stop()
	defer alive.Stop()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	write := func(frame []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := w.Write(frame)
		return err == nil && control.Flush() == nil
	}
	event := func(e Event) bool {
		return write(append(append([]byte("data: "), out.encoded(e)...), "\n\n"...))
	}
	j := reply.stream
	t := j.view(reply.history, true)
	if !event(Event{Task: &t}) {
		return
	}
	for {
		if s := j.Status.State; s.ended() || reply.rests && s.rests() {
			return
		}
		select {
		case <-rung:
		case <-tick.C:
		case <-alive.C:
			if got, refusal := s.host.Identify(out.r); refusal != nil || got != who || !write([]byte(": alive\n\n")) {
				return
			}
			continue
		case <-ctx.Done():
			return
		case <-s.life.Done():
			return
		}
		now, err := s.tasks.get(ctx, who, j.ID)
		if err != nil {
			return
		}
		if !s.tell(event, j, now) {
			return
		}
		j = now
	}
}

// tell sends what is new in a task.
func (s *server) tell(event func(Event) bool, old, now *job) bool {
	if now.Seq == old.Seq {
		return true
	}
	for i := len(old.Artifacts); i < len(now.Artifacts); i++ {
		if !event(Event{Artifact: &ArtifactUpdate{TaskID: now.ID, ContextID: now.ContextID, Artifact: now.Artifacts[i],
			LastChunk: true}}) {
			return false
		}
	}
	if old.Status.State == now.Status.State && old.Status.Timestamp == now.Status.Timestamp {
		return true
	}
	return event(Event{Status: &StatusUpdate{TaskID: now.ID, ContextID: now.ContextID, Status: now.Status,
		Metadata: now.Metadata}})
}

// faultOf is the answer to an error of the store.
func faultOf(err error) *fault {
	if f := (*fault)(nil); errors.As(err, &f) {
		return f
	}
	switch {
	case errors.Is(err, errNone), errors.Is(err, database.ErrForged):
		return noTask.says("there is no such task of yours")
	case errors.Is(err, errMany), errors.Is(err, errAll), errors.Is(err, errSize):
		return tooMuch.says("%v", err)
	}
	slog.Error("a request of A2A failed", "why", err)
	return internal.says("waldo itself failed; try again later")
}
