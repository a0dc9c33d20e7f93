package site

import (
	"net/http"
	"slices"
	"time"

	"waldo/internal/model/display"
)

// startView is the data of the start page.
type startView struct {
	Well     string // the answer to: is all well?
	Faults   []fault
	Waiting  List[Approval]
	Agents   []Agent
	Sessions int
	Today    Hour
	Usual    int    // calls a day, of the last week
	Wait     string // the median of answers in the last day; empty: there was none
	Running  int
	Recent   []Record
	New      bool // no agent has called yet
	Approver bool // somebody can answer
	Rules    int  // contracts
}

// fault is one thing that is not well.
type fault struct{ What, Why, Path string }

// pageStart answers: is all well, and what waits for me?
func (s *Server) pageStart(q *request) (err error) {
	ctx, b := q.Context(), s.o.Backend
	v := startView{}
	if v.Waiting, err = b.Approvals(ctx, Page{Limit: 5}); err != nil {
		return err
	}
	all, err := b.Agents(ctx, Page{Limit: defaultLimit})
	if err != nil {
		return err
	}
	v.Sessions, v.New = all.Total, len(all.Items) == 0
	for _, a := range all.Items {
		if a.State == Running || a.Waiting > 0 {
			v.Running++
			v.Agents = append(v.Agents, a)
		}
	}
	v.Agents = v.Agents[:min(len(v.Agents), 8)]
	days, err := b.Hours(ctx, 8*24, 24)
	if err != nil {
		return err
	}
	for i, d := range days.Items {
		if i == len(days.Items)-1 {
			v.Today = d
		} else {
			v.Usual += d.Calls
		}
	}
	v.Usual /= max(1, len(days.Items)-1)
	if v.Wait, err = s.medianWait(q); err != nil {
		return err
	}
	if v.Recent, err = b.Recent(ctx); err != nil {
		return err
	}
	v.Recent = v.Recent[:min(len(v.Recent), 10)]
	if v.Faults, err = s.faults(q); err != nil {
		return err
	}
	if v.New {
		if err := s.begin(q, &v); err != nil {
			return err
		}
	}
	switch n := len(v.Faults); {
	case v.New:
		v.Well = "waldo is ready. No agent uses it yet."
	case n == 1:
		v.Well = "All is well, except one thing"
	case n > 1:
		v.Well = display.Count(n, "thing") + " need attention"
	default:
		v.Well = "All is well"
	}
	return s.show(q, http.StatusOK, "start", "Overview", v)
}

// faults finds what is not well: servers whose newest call failed, unknown outcomes, webhooks that were given up.
func (s *Server) faults(q *request) (out []fault, err error) {
	servers, err := s.o.Backend.Upstreams(q.Context())
	if err != nil {
		return nil, err
	}
	for _, u := range servers.Items {
		if u.Health == "failing" {
			out = append(out, fault{line(u.Name) + " is failing", line(u.Why), "/servers/" + u.Name})
		}
	}
	open, err := s.o.Backend.Unsettled(q.Context())
	if err != nil {
		return nil, err
	}
	if n := len(open.Items); n > 0 {
		out = append(out, fault{display.Count(n, "call") + " ended without an answer",
			"waldo settle --pending finds out whether they took effect", "/calls"})
	}
	dead, err := s.o.Backend.Deliveries(q.Context(), "dead", Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if dead.Total > 0 {
		out = append(out, fault{display.Count(dead.Total, "webhook") + " waited too long", "retry or drop each", "/webhooks"})
	}
	return out, nil
}

// begin finds how far the set-up is.
func (s *Server) begin(q *request, v *startView) error {
	rules, err := s.o.Backend.Contracts(q.Context())
	if err != nil {
		return err
	}
	for _, c := range rules.Items {
		if !c.BuiltIn {
			v.Rules++
		}
	}
	who, err := s.o.Backend.Approvers(q.Context())
	v.Approver = len(who.Items) > 0
	return err
}

// medianWait is how long people took for the newest answers of the last day.
func (s *Server) medianWait(q *request) (string, error) {
	done, err := s.o.Backend.Answered(q.Context(), Page{Limit: defaultLimit})
	if err != nil {
		return "", err
	}
	var all []float64
	from := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	for _, a := range done.Items {
		if a.WaitMS > 0 && a.At >= from {
			all = append(all, a.WaitMS)
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	slices.Sort(all)
	return waited(all[len(all)/2]), nil
}

// waited is how long a person took.
func waited(ms float64) string {
	if ms <= 0 {
		return ""
	}
	return short(time.Duration(ms) * time.Millisecond)
}
