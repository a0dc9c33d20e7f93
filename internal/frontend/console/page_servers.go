package console

import "net/http"

// pageServers lists the servers of the configuration with their health.
func (s *Server) pageServers(q *request) error {
	l, err := s.o.Backend.Upstreams(q.Context())
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "servers", "Servers", l)
}

// pagePins lists the definitions that wait. It has its own page: a look at them starts each server.
func (s *Server) pagePins(q *request) error {
	l, err := s.o.Backend.Pins(q.Context())
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "pins", "Pins", l)
}
