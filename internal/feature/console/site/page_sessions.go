package site

import "net/http"

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
		List []Call
		More bool
	}{a, l.Items, l.Next != ""})
}
