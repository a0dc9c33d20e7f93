package site

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

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
	var before Page
	if before, err = q.page(); err == nil {
		before.Cursor = q.URL.Query().Get("before")
	}
	done, err := s.o.Backend.Answered(q.Context(), before)
	if err != nil {
		return err
	}
	return s.show(q, http.StatusOK, "approvals", "Approvals", struct {
		List[Approval]
		Answered List[Answered]
	}{l, done})
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

// pageState is the one live text of a question's page, and the digest of the question that it is about. The page is
// never exchanged in part: a passkey signs the question that the page was loaded with.
func (s *Server) pageState(q *request) error {
	a, err := s.o.Backend.Approval(q.Context(), q.PathValue("id"))
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = io.WriteString(q.w, standing(a)+"\n"+a.Digest+"\n")
	return err
}

// standing is the state of a question in words.
func standing(a Approval) string {
	state := line(a.State)
	if a.Need > 1 {
		yes := "none"
		if len(a.Given) > 0 {
			yes = strings.Join(a.Given, " ")
		}
		state += fmt.Sprintf(", yes so far: %s", line(yes))
	}
	return state
}
