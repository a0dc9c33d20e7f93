package site

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

// Issuer logs people in by OpenID Connect.
type Issuer interface {
	// Page returns the address of the issuer's login page.
	Page(ctx context.Context, f Flow) (string, error)
	// Redeem exchanges the code of an answer. From is the iss parameter of the answer; empty: it has none.
	Redeem(ctx context.Context, f Flow, code, from string) (Login, error)
	// Role returns the role that the configuration gives a login now.
	Role(n Login) Role
}

// Flow holds the values of one login at an issuer.
type Flow struct{ State, Nonce, Verifier, Redirect string }

// Login is a person as the issuer describes it.
type Login struct {
	Issuer, Client string
	Principal      call.Principal
	Values         []string // of the claim that gives a role
	Expires        time.Time
}

// Paths and limits of logins at an issuer.
const (
	pathOIDC     = "/login/oidc"
	pathOIDCBack = "/login/oidc/callback"
	flowCookie   = "__Host-waldo-oidc"
	flowLife     = 10 * time.Minute
)

// issuer returns the issuer of the configuration in force; nil: none.
func (s *Server) issuer() Issuer {
	if s.o.OIDC == nil {
		return nil
	}
	return s.o.OIDC()
}

// flow derives the values of a login from its cookie, with a key of this process. So no login is stored before it ends,
// and a changed time or another user's connection gives another state.
func (s *Server) flow(q *request, seed string) Flow {
	f := Flow{Redirect: q.who.Origin + pathOIDCBack}
	for name, to := range map[string]*string{"state": &f.State, "nonce": &f.Nonce, "verifier": &f.Verifier} {
		h := hmac.New(sha256.New, s.key)
		_, _ = h.Write([]byte(strings.Join([]string{name, seed, s.peer(q.Request), f.Redirect}, "\n")))
		*to = base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	}
	return f
}

// setFlow sets the cookie of a login at an issuer. The issuer's page leads back from another site, so it is Lax.
func setFlow(w http.ResponseWriter, seed string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: flowCookie, Value: seed, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: age,
	})
}

// pageOIDC leads to the login page of the issuer.
func (s *Server) pageOIDC(q *request) error {
	issuer := s.issuer()
	if issuer == nil {
		return Problemf(http.StatusNotFound, "not_found", "no issuer is configured: see gateway.console.oidc")
	}
	seed := strconv.FormatInt(s.o.Now().Unix(), 10) + "." + secret()
	to, err := issuer.Page(q.Context(), s.flow(q, seed))
	if err != nil {
		return err
	}
	setFlow(q.w, seed, int(flowLife/time.Second))
	return redirect(q, to)
}

// pageOIDCBack takes the answer of the issuer, and begins a session.
func (s *Server) pageOIDCBack(q *request) error {
	issuer := s.issuer()
	if issuer == nil {
		return Problemf(http.StatusNotFound, "not_found", "no issuer is configured: see gateway.console.oidc")
	}
	if s.crowded(s.from(q.Request)) { // an answer costs a request to the issuer
		return tooMany()
	}
	setFlow(q.w, "", -1)
	n, err := s.redeem(q, issuer)
	who := Who{Principal: n.Principal, Role: RoleNone, Origin: q.who.Origin}
	if err == nil {
		if who.Role = issuer.Role(n); who.Role == RoleNone {
			err = Problemf(http.StatusForbidden, "role", "the issuer gives %s no role of this console", n.Principal)
		}
	}
	if aerr := s.auditLogin(q, "login.oidc", who, err); aerr != nil {
		return aerr
	}
	if err != nil {
		return err
	}
	begun := s.login(q.w, q.Request, who)
	s.mu.Lock()
	begun.oidc = &n
	s.mu.Unlock()
	// A redirect would still be the other site's request, without the Strict cookie. The page leads on by itself.
	q.w.Header().Set("Refresh", "0; url=/")
	return s.show(q, http.StatusOK, "entered", "Logged in", nil)
}

// redeem checks that an answer belongs to the login of the cookie, and exchanges its code. Each cookie is good once.
func (s *Server) redeem(q *request, issuer Issuer) (Login, error) {
	refused := Problemf(http.StatusForbidden, "login.oidc_state",
		"the answer is of no login that this browser began here, or its time is over; log in again")
	c, err := q.Cookie(flowCookie)
	if err != nil {
		return Login{}, refused
	}
	now, asked := s.o.Now(), q.URL.Query()
	f := s.flow(q, c.Value)
	if subtle.ConstantTimeCompare([]byte(asked.Get("state")), []byte(f.State)) != 1 {
		return Login{}, refused
	}
	text, _, _ := strings.Cut(c.Value, ".")
	unix, err := strconv.ParseInt(text, 10, 64)
	if begun := time.Unix(unix, 0); err != nil || now.Sub(begun) > flowLife || !s.first(f.State, now) {
		return Login{}, refused
	}
	if code := asked.Get("code"); code != "" && asked.Get("error") == "" {
		return issuer.Redeem(q.Context(), f, code, asked.Get("iss"))
	}
	return Login{}, Problemf(http.StatusForbidden, "login.oidc_denied", "the issuer did not log in: %s",
		line(cmp.Or(display.Clip(asked.Get("error"), 60), "its answer has no code")))
}

// first notes the use of a state, and reports whether it is the first. The limit on failed logins bounds the notes.
func (s *Server) first(state string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, at := range s.spent {
		if now.Sub(at) > flowLife {
			delete(s.spent, old)
		}
	}
	_, again := s.spent[state]
	s.spent[state] = now
	return !again
}
