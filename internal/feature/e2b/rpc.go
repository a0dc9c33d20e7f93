package e2b

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"waldo/internal/detect/pattern"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// E2B's daemon speaks Connect with JSON: one object for a question, and for a stream objects in envelopes of five bytes
// more: flags and a length. The last envelope of a stream has the flag 2 and the error, if any.
const (
	envelope   = 5
	compressed = 1
	last       = 2
)

// unary and stream are procedures of Connect.
type (
	unary  func(b box, is sandboxes.Sandbox, w http.ResponseWriter, r *http.Request, body []byte) (any, error)
	stream func(b box, is sandboxes.Sandbox, out *sender, r *http.Request, body []byte) error
)

// routeEnvd adds the routes of E2B's daemon.
func (s *server) routeEnvd() {
	for name, f := range map[string]unary{
		"process.Process/List": s.listCommands, "process.Process/Update": s.updateCommand,
		"process.Process/SendInput": s.sendInput, "process.Process/SendSignal": s.sendSignal,
		"process.Process/CloseStdin": s.closeStdin,
		"filesystem.Filesystem/Stat": s.stat, "filesystem.Filesystem/MakeDir": s.makeDir, "filesystem.Filesystem/Move": s.move,
		"filesystem.Filesystem/ListDir": s.listDir, "filesystem.Filesystem/Remove": s.remove,
	} {
		s.mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) { s.unary(w, r, f) })
	}
	for name, f := range map[string]stream{
		"process.Process/Start": s.startCommand, "process.Process/Connect": s.followCommand,
		"filesystem.Filesystem/WatchDir": s.watchDir,
	} {
		s.mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) { s.stream(w, r, f) })
	}
	for _, service := range []string{"process.Process", "filesystem.Filesystem"} {
		s.mux.HandleFunc("/"+service+"/", func(w http.ResponseWriter, r *http.Request) {
			_, _, err := s.inside(r)
			if err == nil {
				err = fail(501, "waldo does not have %.100s: docs/e2b.md lists what it has", r.URL.Path)
			}
			refuse(w, failed(err))
		})
	}
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := s.inside(r); err != nil {
			tell(w, failed(err))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// labelled matches the names that E2B gives the ports of a sandbox.
var labelled = pattern.Lazy(`^([0-9]{1,5})-([a-z2-7]{26})\.`)

// asked returns the full id of the sandbox that a request is for, by its header or the name of its host.
func asked(r *http.Request) (string, error) {
	name := r.Header.Get("E2b-Sandbox-Id")
	if m := labelled().FindStringSubmatch(r.Host); name == "" && m != nil {
		name = m[2]
	}
	if full := string(id.Sandbox) + name; id.Is(id.Sandbox, full) {
		return full, nil
	}
	return "", fail(401, "the request names no sandbox")
}

// inside returns the running sandbox that a request with its token is for. Without the token nobody learns whether
// there is one.
func (s *server) inside(r *http.Request) (box, sandboxes.Sandbox, error) {
	ident, err := asked(r)
	if err != nil {
		return box{}, sandboxes.Sandbox{}, err
	}
	if !s.holds(r.Header.Get("X-Access-Token"), ident, forFiles) {
		return box{}, sandboxes.Sandbox{}, fail(401, "the access token is not that of the sandbox")
	}
	return s.running(r, ident)
}

// running returns a sandbox whose token was shown. A sandbox that is gone or paused is answered as E2B does.
func (s *server) running(r *http.Request, ident string) (box, sandboxes.Sandbox, error) {
	if user := r.URL.Query().Get("username"); !mortal(user) || !mortal(basic(r)) {
		return box{}, sandboxes.Sandbox{}, fail(400, "a sandbox has one user, named user, and no root")
	}
	b, is, err := s.usable(r.Context(), ident)
	if err != nil {
		return b, is, err
	}
	return b, is, known(r, call.Principal(b.Owner))
}

// usable returns a sandbox that runs, and whose key is let in.
func (s *server) usable(ctx context.Context, ident string) (box, sandboxes.Sandbox, error) {
	b, is, err := s.find(ctx, ident)
	if err == nil {
		err = s.kept(ctx, call.Principal(b.Owner))
	}
	f := (*failure)(nil)
	switch {
	case errors.As(err, &f) && f.status == 404:
		return b, is, fail(502, "the sandbox was not found: it was killed, or its time is over")
	case err != nil:
		return b, is, err
	case !s.admitted(b.Owner):
		return b, is, fail(401, "the key that made this sandbox is not let in any more")
	case is.State != sandboxes.Ready:
		return b, is, fail(502, "the sandbox is paused: connect to it first")
	}
	return b, is, nil
}

// mortal reports whether a name is that of the one user.
func mortal(name string) bool { return name == "" || name == "user" }

// basic returns the user that a request names in its Authorization.
func basic(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

// refuse writes an error as Connect has it.
func refuse(w http.ResponseWriter, f *failure) {
	_ = answer(w, f.status, map[string]any{"code": f.code, "message": f.text})
}

func (s *server) unary(w http.ResponseWriter, r *http.Request, f unary) {
	b, is, err := s.inside(r)
	var body json.RawMessage
	var out any
	if err == nil {
		err = kind(r, "application/json")
	}
	if err == nil {
		err = read(w, r, &body)
	}
	if err == nil {
		out, err = f(b, is, w, r, body)
	}
	if err != nil {
		refuse(w, failed(err))
		return
	}
	_ = answer(w, http.StatusOK, out)
}

// kind returns an error for a body in another form, as the binary one of Connect is.
func kind(r *http.Request, want string) error {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || got != want {
		return fail(415, "waldo has Connect in JSON alone: the content type is %s, not %.50q", want, got)
	}
	return nil
}

func (s *server) stream(w http.ResponseWriter, r *http.Request, f stream) {
	b, is, err := s.inside(r)
	if err == nil {
		err = kind(r, "application/connect+json")
	}
	var body []byte
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowBody))
		body, err = unwrap(r.Body)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if err == nil {
		var leave func()
		if leave, err = s.room.stream(r.Context(), b); err == nil {
			defer leave()
		}
	}
	w.Header().Set("Content-Type", "application/connect+json")
	out := &sender{w: w, c: http.NewResponseController(w), every: interval(r.Header.Get("Keepalive-Ping-Interval")),
		slow: slowWrite}
	if err == nil {
		err = s.bound(b, is, out, r, body, f)
	}
	if r.Context().Err() != nil {
		return // nobody listens
	}
	_ = out.finish(err)
}

// bound answers a stream until the delegation of this process ends.
func (s *server) bound(b box, is sandboxes.Sandbox, out *sender, r *http.Request, body []byte, f stream) error {
	ctx, done, why := s.h.Bound(r.Context(), call.Call{Principal: call.Principal(b.Owner)})
	defer done()
	var err error
	if why == nil {
		err = f(b, is, out, r.WithContext(ctx), body)
		why = call.Stopped(ctx)
	}
	if why != nil {
		return fail(403, "%s: %s", why.Code, why.Text)
	}
	return err
}

// unwrap reads the one envelope of a request.
func unwrap(from io.Reader) ([]byte, error) {
	var head [envelope]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, fail(400, "the body has no envelope of Connect")
	}
	n := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0]&compressed != 0:
		return nil, fail(415, "waldo takes no compressed envelope")
	case head[0] != 0 || n > maxBody:
		return nil, fail(413, "an envelope has at most %d bytes", maxBody)
	}
	body, err := io.ReadAll(io.LimitReader(from, int64(n)))
	if err != nil || len(body) != int(n) {
		return nil, fail(400, "the envelope was not there within %v", slowBody)
	}
	return body, nil
}

// usualPing is how often a stream without events sends a keep-alive.
const usualPing = 30 * time.Second

// interval reads how often a client asks for one.
func interval(text string) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= 300 {
		return time.Duration(n) * time.Second
	}
	return usualPing
}

// deadline reads the time that a client gives a stream; 0: no limit.
func deadline(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || len(text) > 10 {
		return 0, fail(400, "Connect-Timeout-Ms: a number of at most 10 digits")
	}
	return time.Duration(n) * time.Millisecond, nil
}

// sender writes the envelopes of one stream.
type sender struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	every time.Duration
	slow  time.Duration // in which the client takes an envelope
}

func (o *sender) envelope(flag byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	head := make([]byte, envelope, envelope+len(text))
	head[0] = flag
	binary.BigEndian.PutUint32(head[1:], uint32(len(text)))
	_ = o.c.SetWriteDeadline(time.Now().Add(o.slow))
	if _, err := o.w.Write(append(head, text...)); err != nil {
		return err
	}
	return o.c.Flush()
}

// send writes one message.
func (o *sender) send(v any) error { return o.envelope(0, v) }

// alive sends a keep-alive.
func (o *sender) alive() error { return o.send(event{map[string]any{"keepalive": struct{}{}}}) }

func (o *sender) finish(err error) error {
	if err == nil {
		return o.envelope(last, struct{}{})
	}
	f := failed(err)
	return o.envelope(last, map[string]any{"error": map[string]any{"code": f.code, "message": f.text}})
}

// selector names a process.
type selector struct {
	PID *uint32 `json:"pid"`
	Tag *string `json:"tag"`
}

// input is bytes for a process.
type input struct {
	Stdin *string `json:"stdin"`
	PTY   *string `json:"pty"`
}

// raw decodes base64 as protobuf's JSON allows it: either alphabet, padded or not.
func raw(text string) ([]byte, error) {
	text = strings.TrimRight(text, "=")
	if strings.ContainsAny(text, "-_") {
		return base64.RawURLEncoding.DecodeString(text)
	}
	return base64.RawStdEncoding.DecodeString(text)
}
