package site

import (
	"errors"
	"net/http"
)

// pageSessions lists the sessions of agents, the last used first. An operator can stop and release each.
func (s *Server) pageSessions(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Agents(q.Context(), p)
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "sessions", "Sessions", struct {
		List[Agent]
		MayAct bool
	}{l, q.who.Role >= RoleOperator})
}

// pageSession shows one session with its calls.
func (s *Server) pageSession(q *request) error {
	a, err := s.o.Backend.Agent(q.Context(), q.PathValue("name"))
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Calls(q.Context(), CallFilter{Session: a.Session}, Page{Limit: defaultLimit})
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "session", hostOf(a.Agent, a.Principal)+" "+placeOf(a.Folder, a.Channel), struct {
		Agent
		List   []Call
		More   bool
		MayAct bool
	}{a, l.Items, l.Next != "", q.who.Role >= RoleOperator})
}

// postSession stops or releases a session, as the API does.
func (s *Server) postSession(release bool) func(*request) error {
	action := map[bool]string{false: "stop", true: "release"}[release]
	return func(q *request) error {
		name := q.PathValue("name")
		err := s.act(q, action, name, func() error { return s.o.Backend.Stop(q.Context(), q.who, name, release) })
		var late *Problem
		if errors.As(err, &late) && late.Status == http.StatusAccepted { // it is in force, and the list shows it
			err = nil
		}
		if err != nil {
			return err
		}
		return redirect(q, "/sessions")
	}
}
