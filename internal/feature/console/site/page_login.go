package site

import (
	"net/http"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// pageLogin asks for the token of a one-time link. The token is behind # in the link, so no GET spends it: a preview
// of the link does not log in.
func (s *Server) pageLogin(q *request) error {
	if q.n != nil {
		return redirect(q, "/")
	}
	return s.showLogin(q, http.StatusOK, "")
}

// showLogin draws the page of the login, with an alert.
func (s *Server) showLogin(q *request, status int, alert string) error {
	return s.show(q, status, "login", "Log in", struct {
		Alert string
		OIDC  bool
	}{alert, s.issuer() != nil})
}

func (s *Server) postLogin(q *request) error {
	if err := q.ParseForm(); err != nil {
		return Problemf(http.StatusBadRequest, "body", "the form cannot be read")
	}
	who := q.who
	who.Peer = s.peer(q.Request)
	role, err := s.o.Backend.UseLink(q.Context(), who, q.PostForm.Get("token"))
	if err == nil && role == RoleNone {
		err = Problemf(http.StatusForbidden, "link", "the link gives no role")
	}
	who = Who{Principal: call.Principal("link"), Role: role, Origin: q.who.Origin}
	if aerr := s.auditLogin(q, "login", who, err); aerr != nil {
		return aerr
	}
	if err != nil {
		return s.showLogin(q, http.StatusForbidden,
			"The link was used before, is another user's of this machine, or its time is over. "+
				"Get a new one at a terminal: waldo console --link")
	}
	s.login(q.w, q.Request, who)
	to := "/"
	if next := q.PostForm.Get("next"); id.Is(id.Approval, next) {
		to = "/approvals/" + next
	}
	return redirect(q, to)
}

func (s *Server) postLogout(q *request) error {
	return s.act(q, "logout", "", func() error {
		if q.n != nil {
			s.logout(q.w, q.n)
		}
		return redirect(q, "/login")
	})
}

// pageEnrol leads through the enrolment of a passkey. The secret from the terminal lets a person in, not a login.
func (s *Server) pageEnrol(q *request) error {
	return s.show(q, http.StatusOK, "enrol", "Enrol a passkey", nil)
}

// tooMany answers a login that fails where too many did.
func tooMany() *Problem {
	return Problemf(http.StatusTooManyRequests, "too_many", "too many logins from there failed; try again in a minute")
}

// auditLogin records a login, or why it was refused. The returned error is the recording's own, or that too many failed.
func (s *Server) auditLogin(q *request, action string, who Who, refused error) error {
	e := Event{Action: action, Target: who.Role.String(), Result: "done"}
	if refused != nil {
		if s.strikes(s.from(q.Request), 1) > maxFailed {
			return tooMany()
		}
		e.Result, e.Why = "refused", refused.Error()
	}
	return s.o.Backend.Audit(q.Context(), who, e)
}
