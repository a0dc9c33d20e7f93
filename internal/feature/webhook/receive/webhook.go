// Package receive receives signed events at /hooks/NAME. It bounds and verifies each request before the event is
// stored, and answers 202 only when it is.
package receive

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"waldo/internal/feature/webhook/signature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// Path begins the path of every webhook.
const Path = "/hooks/"

// Arrival is a webhook whose signature fits.
type Arrival struct {
	Hook string
	signature.Message
	Event       string // as a header names it, which is not signed
	ContentType string
	Body        []byte // as it came
	Peer        string
}

// Verdict says what became of an arrival. The zero Verdict accepts nothing.
type Verdict int

// The verdicts.
const (
	Refused  Verdict = iota
	Stored           // it is on the disk
	Repeated         // accepted earlier; the sender signed it again
	Replayed         // accepted earlier
	Full             // too many wait
)

// Event is a record of requests.
type Event struct {
	Event     string         `json:"event"` // received or refused
	Hook      string         `json:"hook"`
	Principal call.Principal `json:"principal"`
	Reason    string         `json:"reason,omitempty"` // of a refusal: a class, never a text of the sender
	Count     int            `json:"count,omitempty"`  // refusals for this reason since the record before
	Peer      string         `json:"peer,omitempty"`   // of the first of them
	Delivery  string         `json:"delivery_id,omitempty"`
	Digest    string         `json:"digest,omitempty"` // of the body
	Bytes     int            `json:"bytes,omitempty"`
	Row       string         `json:"row,omitempty"` // digest of the delivery
}

// Principal is the principal of a webhook's calls.
func Principal(hook string) call.Principal { return call.Principal("hook:" + hook) }

// Options are what the front end needs.
type Options struct {
	Hook   func(name string) (contract.Webhook, bool) // of the configuration in force
	Secret func(secret.Ref) (secret.Value, error)
	Accept func(ctx context.Context, a Arrival) (Verdict, error) // stores and records it
	Record func(Event)                                           // a refusal
	Now    func() time.Time                                      // nil: time.Now
	Log    *slog.Logger                                          // nil: nothing is logged
}

// Limits of all requests.
const (
	maxHeld     = 64 << 20         // bytes of bodies that are being read
	patience    = 10 * time.Second // to send a body
	usualWindow = time.Minute
	usualRate   = 120 // accepted, of one hook, in usualWindow
	// refused, of one peer, in usualWindow; a proxy on this machine stands for all of its clients
	peerRate, localRate = 60, 600
	maxPeers            = 4096
)

// Server answers the requests. It satisfies http.Handler.
type Server struct {
	o        Options
	hooks    *rates // accepted, by hook
	peers    *rates // refused, by address
	held     held
	refusals tallies
}

// New returns a server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{o: o, hooks: newRates(maxPeers), peers: newRates(maxPeers), refusals: tallies{record: o.Record}}
}

// Flush records the refusals that were only counted so far.
func (s *Server) Flush() { s.refusals.flush() }

// answer is the answer to a request, and the class of a refusal.
type answer struct {
	status int
	why    string
	after  time.Duration // of Retry-After
	text   string
}

// ServeHTTP satisfies http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Path)
	hook, ok := s.o.Hook(name)
	peer := peerOf(r)
	who := Principal(name)
	if !ok {
		name, who = "", "" // as the sender wrote it, it goes to no log
	}
	a := answer{status: http.StatusNotFound, why: "unknown"}
	if wait := s.peers.full(peer, bound(peer), s.o.Now()); wait > 0 {
		a = answer{status: http.StatusTooManyRequests, why: "peer_rate", after: wait}
	} else if ok {
		a = s.receive(w, r, hook, peer)
	}
	if a.why != "" {
		if a.status == http.StatusUnauthorized || a.status == http.StatusNotFound {
			s.peers.take(peer, bound(peer), s.o.Now())
		}
		s.refusals.add(Event{Event: "refused", Hook: name, Principal: who, Reason: a.why, Peer: peer}, s.o.Now())
	}
	h := w.Header()
	if a.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((a.after+time.Second-1)/time.Second)))
	}
	if a.status == http.StatusMethodNotAllowed {
		h.Set("Allow", http.MethodPost)
	}
	if a.status >= 400 {
		h.Set("Connection", "close") // the rest of the body stays unread
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(a.status)
	if a.text == "" {
		a.text = strings.ToLower(http.StatusText(a.status)) + "\n"
	}
	_, _ = io.WriteString(w, a.text)
}

// receive takes one request for a hook.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, hook contract.Webhook, peer string) answer {
	if r.Method != http.MethodPost {
		return answer{status: http.StatusMethodNotAllowed, why: "method"}
	}
	if !taken(r.Header) {
		return answer{status: http.StatusUnsupportedMediaType, why: "type"}
	}
	most := int64(hook.MaxKB) << 10
	if r.ContentLength > most {
		return answer{status: http.StatusRequestEntityTooLarge, why: "size"}
	}
	scheme := signature.Scheme(hook.Scheme)
	claim, err := scheme.Read(r.Header, s.o.Now(), hook.Window)
	if err != nil {
		return refusal(err)
	}
	keys, err := s.keys(hook)
	if err != nil {
		s.o.Log.Warn("a webhook cannot be verified", "webhook", hook.Name, "why", err)
		return answer{status: http.StatusServiceUnavailable, why: string(signature.NoKey)}
	}
	size := r.ContentLength
	if size < 0 {
		size = most
	}
	if !s.held.take(peer, size) {
		return answer{status: http.StatusServiceUnavailable, why: "busy", after: time.Second}
	}
	defer s.held.give(peer, size)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
			return answer{status: http.StatusRequestEntityTooLarge, why: "size"}
		}
		return answer{status: http.StatusBadRequest, why: "body"}
	}
	m, err := claim.Verify(body, keys)
	if err != nil {
		return refusal(err)
	}
	if text, ok := challenge(scheme, body); ok {
		return answer{status: http.StatusOK, text: text}
	}
	return s.store(r, hook, Arrival{Hook: hook.Name, Message: m, Event: eventOf(r.Header), Body: body, Peer: peer,
		ContentType: r.Header.Get("Content-Type")})
}

// store has an arrival stored, where its hook's rate allows it.
func (s *Server) store(r *http.Request, hook contract.Webhook, a Arrival) answer {
	rate := hook.Rate
	if rate.Calls == 0 {
		rate = contract.Rate{Calls: usualRate, Per: usualWindow}
	}
	if wait := s.hooks.full(hook.Name, rate, s.o.Now()); wait > 0 {
		return answer{status: http.StatusTooManyRequests, why: "rate", after: wait}
	}
	// A sender that hangs up does not undo what is stored.
	v, err := s.o.Accept(context.WithoutCancel(r.Context()), a)
	if err != nil {
		s.o.Log.Warn("a webhook was not stored", "webhook", hook.Name, "why", err)
		return answer{status: http.StatusServiceUnavailable, why: "store", after: usualWindow}
	}
	switch v {
	case Stored:
		s.hooks.take(hook.Name, rate, s.o.Now())
		return answer{status: http.StatusAccepted}
	case Repeated:
		return answer{status: http.StatusOK, text: "accepted earlier\n"}
	case Replayed:
		return answer{status: http.StatusConflict, why: "replay"}
	case Full:
		return answer{status: http.StatusServiceUnavailable, why: "full", after: usualWindow}
	}
	return answer{status: http.StatusServiceUnavailable, why: "store", after: usualWindow}
}

// refusal is the answer to a webhook that is not verified: the same for every reason.
func refusal(err error) answer {
	why := signature.BadSignature
	errors.As(err, &why)
	if why == signature.NoKey {
		return answer{status: http.StatusServiceUnavailable, why: string(why)}
	}
	return answer{status: http.StatusUnauthorized, why: string(why)}
}

// keys fetches the secrets of a hook: the current one, and the previous one where one is named.
func (s *Server) keys(hook contract.Webhook) ([]signature.Key, error) { return Keys(hook, s.o.Secret) }

// Keys fetches the secrets of a hook. One that cannot be had, or is too short, is an error.
func Keys(hook contract.Webhook, get func(secret.Ref) (secret.Value, error)) (keys []signature.Key, err error) {
	for _, ref := range []secret.Ref{hook.Secret, hook.Previous} {
		if ref == "" {
			continue
		}
		v, err := get(ref)
		if err != nil {
			return nil, err
		}
		k, err := signature.Scheme(hook.Scheme).Key(v.Reveal())
		if err != nil {
			return nil, errors.New(string(ref) + ": " + err.Error())
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// taken reports whether a body has a form that is accepted: not compressed, and of a type that senders use. A
// request without a type is taken as bytes.
func taken(h http.Header) bool {
	if e := h.Values("Content-Encoding"); len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "identity") {
		return false
	}
	all := h.Values("Content-Type")
	if len(all) == 0 {
		return true
	}
	kind, _, err := mime.ParseMediaType(all[0])
	if len(all) > 1 || err != nil {
		return false
	}
	switch kind {
	case "application/json", "application/x-www-form-urlencoded", "text/plain", "application/octet-stream":
		return true
	}
	return strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// eventOf is the name that GitHub gives an event, in a header that it does not sign.
func eventOf(h http.Header) string {
	s := h.Get("X-GitHub-Event")
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '_' {
			return ""
		}
	}
	if len(s) > 64 {
		return ""
	}
	return s
}

// challenge answers the first request of Slack, which proves that the address is ours.
func challenge(s signature.Scheme, body []byte) (string, bool) {
	var m struct{ Type, Challenge string }
	if s != signature.Slack || json.Unmarshal(body, &m) != nil || m.Type != "url_verification" || len(m.Challenge) > 512 {
		return "", false
	}
	return m.Challenge, true
}
