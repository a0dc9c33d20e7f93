package site

import (
	"context"
	"crypto/subtle"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"waldo/internal/model/call"
)

// Limits on logins.
const (
	sessionLife = 12 * time.Hour
	sessionIdle = 2 * time.Hour
	maxSessions = 200
	maxFailed   = 20 // failed logins of one peer in a minute; more fail without a record
	maxPeers    = 50 // other machines with their own share; further ones have one together
)

// session is one login, in memory: it ends with the process.
type session struct {
	id, csrf    string
	who         Who
	peer        string // the user of this machine who logged in; no other user's connection has the session
	begun, used time.Time
	passkey     bool // its principal is an approver, whose right can end
	oidc        *Login
}

// cookieName is the name of the session's cookie. The prefix makes browsers refuse it from another host or path, and
// from a page of plain HTTP other than localhost.
const cookieName = "__Host-waldo"

// login begins a session and sets its cookie.
func (s *Server) login(w http.ResponseWriter, r *http.Request, who Who) *session {
	now := s.o.Now()
	n := &session{id: secret(), csrf: secret(), who: who, peer: s.peer(r), begun: now, used: now}
	n.who.Session = n.id
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, old := range s.sessions {
		if s.over(old) {
			delete(s.sessions, id)
		}
	}
	if len(s.sessions) >= maxSessions {
		oldest := n
		for _, old := range s.sessions {
			if old.used.Before(oldest.used) {
				oldest = old
			}
		}
		delete(s.sessions, oldest.id)
	}
	s.sessions[n.id] = n
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: n.id, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	return n
}

func (s *Server) over(n *session) bool {
	now := s.o.Now()
	return now.Sub(n.begun) > sessionLife || now.Sub(n.used) > sessionIdle || n.oidc != nil && !now.Before(n.oidc.Expires)
}

// logout ends a session.
func (s *Server) logout(w http.ResponseWriter, n *session) {
	s.mu.Lock()
	delete(s.sessions, n.id)
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1,
	})
}

// session returns the login of a request's cookie; nil: none.
func (s *Server) session(r *http.Request) *session {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	n := s.sessions[c.Value]
	ended := n == nil || s.over(n)
	s.mu.Unlock()
	if ended || n.peer != s.peer(r) { // asked for known cookies alone: it reads a table of the kernel
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.used = s.o.Now()
	return n
}

// peer returns which user of this machine made a request's connection.
func (s *Server) peer(r *http.Request) string {
	if s.o.Peer == nil {
		return ""
	}
	return s.o.Peer(r)
}

// from names who made a request's connection: a user of this machine by uid, or another machine by address. A network
// of IPv6 addresses that one machine can have counts as one.
func (s *Server) from(r *http.Request) string {
	if uid := s.peer(r); uid != "" {
		return uid
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if a := at.Addr().Unmap(); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().String()
	}
	return at.Addr().Unmap().String()
}

// crowded reports whether a peer has used up its failed logins of the last minute. A login that is good succeeds all
// the same, so nobody shuts out another person, also where a proxy makes all connections.
func (s *Server) crowded(peer string) bool { return s.strikes(peer, 0) >= maxFailed }

// strikes adds failed logins to a peer's share of the last minute, and returns how many that has.
func (s *Server) strikes(peer string, more int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	maps.DeleteFunc(s.failed, func(_ string, f failures) bool { return now.Sub(f.begun) >= time.Minute })
	if _, known := s.failed[peer]; !known && len(s.failed) >= maxPeers && strings.ContainsAny(peer, ".:") {
		peer = "others" // users of this machine are few, and none is counted with strangers
	}
	f, ok := s.failed[peer]
	if !ok {
		f.begun = now
	}
	if f.n += more; f.n > 0 {
		s.failed[peer] = f
	}
	return f.n
}

// failures are the failed logins of a peer in one minute.
type failures struct {
	begun time.Time
	n     int
}

// request is one request of a known login.
type request struct {
	*http.Request
	w    http.ResponseWriter
	who  Who
	csrf string // of a cookie's session; empty with a token
	n    *session
}

// route is one path of the console or of the API.
type route struct {
	Method, Path string
	Role         Role
	Open         bool // needs no login
	Handle       func(*request) error
}

// guard lets a request in where its login has the role. A request that changes something must come from a page of
// the console itself, with the token of its session.
func (s *Server) guard(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{Request: r, w: w, who: Who{Origin: s.origin(r)}}
		if p := s.admit(rt, q); p != nil {
			s.fail(w, r, p)
			return
		}
		if known := knownOf(r.Context()); known != nil && q.who.Role > RoleNone {
			known(q.who.Principal)
		}
		if err := rt.Handle(q); err != nil {
			s.fail(w, r, err)
		}
	})
}

// admit checks who asks, and whether it may.
func (s *Server) admit(rt route, q *request) *Problem {
	changes := rt.Method != http.MethodGet
	if changes && !s.sameOrigin(q) {
		return Problemf(http.StatusForbidden, "cross_site", "the request comes from another site's page")
	}
	bearer := q.Header.Get("Authorization")
	switch {
	case rt.Open:
		q.n = s.session(q.Request)
		if q.n != nil {
			q.who, q.csrf = s.as(q), q.n.csrf
		}
		return nil
	case bearer != "":
		if s.o.Identify == nil || !strings.HasPrefix(q.URL.Path, "/api/") {
			return Problemf(http.StatusUnauthorized, "token", "no token is taken here")
		}
		q.who.Principal, q.who.Role = s.o.Identify(q.Request)
		q.who.Session = "token " + string(q.who.Principal)
		if q.who.Principal == "" {
			return Problemf(http.StatusUnauthorized, "token", "the token is not known")
		}
	default:
		if q.n = s.session(q.Request); q.n == nil {
			return Problemf(http.StatusUnauthorized, "login", "log in with a link from: waldo console --link")
		}
		if p := s.stands(q); p != nil {
			return p
		}
		q.who, q.csrf = s.as(q), q.n.csrf
		if changes && subtle.ConstantTimeCompare([]byte(s.token(q)), []byte(q.csrf)) != 1 {
			return Problemf(http.StatusForbidden, "csrf", "the request lacks the token of its session; load the page again")
		}
	}
	if q.who.Role < max(rt.Role, RoleViewer) {
		return Problemf(http.StatusForbidden, "role", "this needs the role %s, and the login has %s", rt.Role, q.who.Role)
	}
	return nil
}

// stands ends a login whose right was ended, and gives it the role of the configuration in force.
func (s *Server) stands(q *request) *Problem {
	role, err := RoleNone, error(nil)
	switch issuer := s.issuer(); {
	case q.n.passkey:
		role, err = s.o.Backend.Role(q.Context(), q.n.who.Principal)
	case q.n.oidc == nil:
		return nil
	case issuer != nil:
		role = issuer.Role(*q.n.oidc)
	}
	if err != nil || role == RoleNone {
		s.mu.Lock()
		delete(s.sessions, q.n.id)
		s.mu.Unlock()
		return Problemf(http.StatusUnauthorized, "login", "the right of %s was ended", q.n.who.Principal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.n.who.Role = role
	return nil
}

// as returns who the session is, with the origin that this request's browser sees.
func (s *Server) as(q *request) Who {
	who := q.n.who
	who.Origin = s.origin(q.Request)
	return who
}

// token returns the CSRF token that a request bears: a header of a script, a field of a form.
func (s *Server) token(q *request) string {
	if t := q.Header.Get("X-CSRF-Token"); t != "" {
		return t
	}
	if strings.HasPrefix(q.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return q.PostFormValue("csrf")
	}
	return ""
}

// sameOrigin reports whether a request that changes something comes from the console's own page, or from no page.
func (s *Server) sameOrigin(q *request) bool {
	if site := q.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	for _, origin := range q.Header.Values("Origin") {
		if origin != s.origin(q.Request) {
			return false
		}
	}
	return true
}

type knownKey struct{}

func withKnown(ctx context.Context, known func(call.Principal)) context.Context {
	if known == nil {
		return ctx
	}
	return context.WithValue(ctx, knownKey{}, known)
}

func knownOf(ctx context.Context) func(call.Principal) {
	known, _ := ctx.Value(knownKey{}).(func(call.Principal))
	return known
}
