package console

import "net/http"

// pageApprovals is the inbox: the questions that wait, oldest first.
func (s *Server) pageApprovals(q *request) error {
	p, err := q.page()
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Approvals(q.Context(), p)
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "approvals", "Approvals", l)
}

// pageApproval is one question, whole, with its answer.
func (s *Server) pageApproval(q *request) error {
	a, err := s.o.Backend.Approval(q.Context(), q.PathValue("id"))
	if err != nil {
		return err
	}
	who, err := s.o.Backend.Approvers(q.Context())
	if err != nil {
		return err
	}
	here := who.Items[:0]
	for _, x := range who.Items {
		if x.Passkey && x.Origin == q.who.Origin {
			here = append(here, x)
		}
	}
	return s.show(q, http.StatusOK, "approval", "Approval "+a.ID, struct {
		Approval
		Approvers []Approver
		Origin    string
		MayAnswer bool
	}{a, here, q.who.Origin, q.who.Role >= RoleApprover})
}
