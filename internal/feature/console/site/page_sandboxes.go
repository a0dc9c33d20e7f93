package site

import "net/http"

// pageSandboxes lists the named sandboxes. An operator can pause, resume and stop each.
func (s *Server) pageSandboxes(q *request) error {
	l, err := s.o.Backend.Sandboxes(q.Context())
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "sandboxes", "Sandboxes", struct {
		List[Sandbox]
		MayAct bool
	}{l, q.who.Role >= RoleOperator})
}

// postSandbox does what a form of the page asks, as the API does.
func (s *Server) postSandbox(act string) func(*request) error {
	return func(q *request) error {
		name := q.PathValue("name")
		err := s.act(q, "sandbox."+act, name, func() error { return s.o.Backend.SandboxAct(q.Context(), q.who, name, act) })
		if err != nil {
			return err
		}
		return redirect(q, "/sandboxes")
	}
}
