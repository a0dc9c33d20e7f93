package console

import (
	"net/http"
	"net/url"
)

// pageCalls lists the calls, newest first.
func (s *Server) pageCalls(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	f := callFilter(q.URL.Query())
	l, err := s.o.Backend.Calls(q.Context(), f, p)
	if err != nil {
		return err
	}
	more := ""
	if l.Next != "" {
		v := url.Values{"cursor": {l.Next}}
		for name, value := range map[string]string{
			"capability": f.Capability, "principal": f.Principal, "effect": f.Effect, "status": f.Status, "session": f.Session,
		} {
			if value != "" {
				v.Set(name, value)
			}
		}
		more = "/calls?" + v.Encode()
	}
	return s.show(q, http.StatusOK, "calls", "Calls", struct {
		List[Call]
		Effects []string
		Filter  CallFilter
		More    string
	}{l, []string{"", "allow", "ask", "deny"}, f, more})
}

// pageCall shows one call's whole life.
func (s *Server) pageCall(q *request) error {
	c, err := s.o.Backend.Call(q.Context(), q.PathValue("id"))
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "call", "Call "+c.ID, c)
}
