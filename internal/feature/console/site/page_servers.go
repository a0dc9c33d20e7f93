package site

import "net/http"

// pageServer shows one server. It starts none.
func (s *Server) pageServer(q *request) error {
	l, err := s.o.Backend.Upstream(q.Context(), q.PathValue("name"))
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "server", line(l.Name), l)
}

// restart ends a server, so that the next call starts it anew.
func (s *Server) restart(q *request) error {
	name := q.PathValue("name")
	return s.order(q, "server.restart", name, "/servers", map[string]string{"name": name, "act": "restart"},
		func() error { return s.o.Backend.Restart(q.Context(), name) })
}

// pageEgress lists the attempts to reach another machine.
func (s *Server) pageEgress(q *request) error {
	f := egressFilter(q.URL.Query())
	l, err := s.o.Backend.Egress(q.Context(), f)
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "egress", "Egress", struct {
		List[Egress]
		Filter EgressFilter
	}{l, f})
}
