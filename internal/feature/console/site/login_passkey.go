package site

import (
	"encoding/json"
	"net/http"
	"strings"
)

// apiLoginBegin begins a login with the passkey of an approver.
func (s *Server) apiLoginBegin(q *request) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	who := q.who
	who.Peer = s.from(q.Request)
	c, err := s.o.Backend.LoginBegin(q.Context(), who, strings.TrimSpace(in.Name))
	return reply(q, c, err)
}

// apiLogin takes the signature of the passkey, and begins a session.
func (s *Server) apiLogin(q *request) error {
	var in struct {
		Assertion json.RawMessage `json:"assertion"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	principal, role, err := s.o.Backend.LoginFinish(q.Context(), q.who, q.PathValue("draft"), in.Assertion)
	if err == nil && role == RoleNone {
		err = Problemf(http.StatusForbidden, "role", "the login has no role")
	}
	who := Who{Principal: principal, Role: role, Origin: q.who.Origin}
	if aerr := s.auditLogin(q, "login.passkey", who, err); aerr != nil {
		return aerr
	}
	if err != nil {
		return err
	}
	n := s.login(q.w, q.Request, who)
	s.mu.Lock()
	n.passkey = true
	s.mu.Unlock()
	return reply(q, map[string]string{"principal": string(principal), "role": role.String()}, nil)
}
