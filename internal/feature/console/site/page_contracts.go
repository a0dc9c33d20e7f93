package site

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
)

// contractsView is the data of the page.
type contractsView struct {
	List[Contract]
	MayCompare bool
	Asked      DryRun
	Args       string
	Decision   *Decision
	File       string // in force
	Why        string // an error of the form
	Text       string
	WhatIf     *WhatIf
}

// pageContracts lists the contracts in force, and has the forms to try a call and a changed configuration.
func (s *Server) pageContracts(q *request) error {
	return s.showContracts(q, contractsView{Asked: DryRun{Capability: q.URL.Query().Get("capability")}})
}

func (s *Server) showContracts(q *request, v contractsView) (err error) {
	if v.List, err = s.o.Backend.Contracts(q.Context()); err != nil {
		return err
	}
	for _, c := range v.Items {
		v.File = cmp.Or(v.File, c.File)
	}
	if v.MayCompare = q.who.Role >= RoleOperator; v.MayCompare && v.Text == "" {
		if v.Text, err = s.o.Backend.Current(q.Context()); err != nil {
			return err
		}
	}
	status := http.StatusOK
	if v.Why != "" {
		status = http.StatusBadRequest
	}
	return s.show(q, status, "contracts", "Contracts", v)
}

// postDryRun decides the call of the form, which is not made.
func (s *Server) postDryRun(q *request) error {
	v := contractsView{Args: q.PostFormValue("args")}
	v.Asked = DryRun{Capability: strings.TrimSpace(q.PostFormValue("capability")), Args: []byte(v.Args),
		Principal: strings.TrimSpace(q.PostFormValue("principal"))}
	d, err := s.dryRun(q, v.Asked)
	switch p := (*Problem)(nil); {
	case err == nil:
		v.Decision = &d
	case errors.As(err, &p) && p.Status == http.StatusBadRequest:
		v.Why = p.Detail
	default:
		return err
	}
	return s.showContracts(q, v)
}

// postWhatIf compares the configuration of the form with the one in force.
func (s *Server) postWhatIf(q *request) error {
	text := strings.ReplaceAll(q.PostFormValue("text"), "\r\n", "\n") // as browsers send line ends
	w, err := s.whatIf(q, text)
	if err != nil {
		return err
	}
	return s.showContracts(q, contractsView{Text: text, WhatIf: &w})
}
