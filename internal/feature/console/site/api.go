package site

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"waldo/internal/protocol/strictjson"
)

// routes are all paths. A test holds those under /api/v1 against openapi.json.
func (s *Server) routes() []route {
	get, post := http.MethodGet, http.MethodPost
	return append([]route{
		{get, "/api/v1/openapi.json", RoleNone, true, s.openAPI},
		{get, "/api/v1/me", RoleViewer, false, s.apiMe},
		{get, "/api/v1/approvals", RoleViewer, false, answerPage(s, Backend.Approvals)},
		{get, "/api/v1/answered", RoleViewer, false, answerPage(s, Backend.Answered)},
		{get, "/api/v1/approvals/{id}", RoleViewer, false, answerOne(s, Backend.Approval)},
		{post, "/api/v1/approvals/{id}/draft", RoleApprover, false, s.apiDraft},
		{post, "/api/v1/approvals/{id}/approve", RoleApprover, false, s.apiSettle("approve")},
		{post, "/api/v1/approvals/{id}/deny", RoleApprover, false, s.apiSettle("deny")},
		{get, "/api/v1/approvers", RoleViewer, false, answer(s, Backend.Approvers)},
		{post, "/api/v1/login", RoleNone, true, s.apiLoginBegin},
		{post, "/api/v1/login/{draft}", RoleNone, true, s.apiLogin},
		{post, "/api/v1/enrolment", RoleNone, true, s.apiInvited},
		{post, "/api/v1/enrolment/{draft}/register", RoleNone, true, s.apiRegister},
		{post, "/api/v1/enrolment/{draft}/finish", RoleNone, true, s.apiSign("enrol", Backend.Enrol)},
		{post, "/api/v1/enrolment-root", RoleNone, true, s.apiRootBegin},
		{post, "/api/v1/enrolment-root/{draft}/sign", RoleNone, true, s.apiSign("enrol.root", Backend.RootSign)},
		{get, "/api/v1/calls", RoleViewer, false, s.apiCalls},
		{get, "/api/v1/calls/{id}", RoleViewer, false, answerOne(s, Backend.Call)},
		{get, "/api/v1/agents", RoleViewer, false, answerPage(s, Backend.Agents)},
		{get, "/api/v1/agents/{id}", RoleViewer, false, answerOne(s, Backend.Agent)},
		{post, "/api/v1/agents/{name}/stop", RoleOperator, false, s.stop(false)},
		{post, "/api/v1/agents/{name}/release", RoleOperator, false, s.stop(true)},
		{get, "/api/v1/sandboxes", RoleViewer, false, answer(s, Backend.Sandboxes)},
		{post, "/api/v1/sandboxes/{name}/pause", RoleOperator, false, s.sandbox("pause")},
		{post, "/api/v1/sandboxes/{name}/resume", RoleOperator, false, s.sandbox("resume")},
		{post, "/api/v1/sandboxes/{name}/stop", RoleOperator, false, s.sandbox("stop")},
		{get, "/api/v1/upstreams", RoleViewer, false, answer(s, Backend.Upstreams)},
		{get, "/api/v1/upstreams/{id}", RoleViewer, false, answerOne(s, Backend.Upstream)},
		{post, "/api/v1/upstreams/{name}/restart", RoleOperator, false, s.restart},
		{get, "/api/v1/egress", RoleViewer, false, s.apiEgress},
		{get, "/api/v1/webhooks", RoleViewer, false, answer(s, Backend.Webhooks)},
		{get, "/api/v1/deliveries", RoleViewer, false, s.apiDeliveries},
		{post, "/api/v1/deliveries/{id}/retry", RoleOperator, false, s.deliver("retry")},
		{post, "/api/v1/deliveries/{id}/drop", RoleOperator, false, s.deliver("drop")},
		{get, "/api/v1/contracts", RoleViewer, false, answer(s, Backend.Contracts)},
		{post, "/api/v1/contracts/dry-run", RoleViewer, false, s.apiDryRun},
		{post, "/api/v1/contracts/what-if", RoleOperator, false, s.apiWhatIf},
		{get, "/api/v1/unsettled", RoleViewer, false, answer(s, Backend.Unsettled)},
		{get, "/api/v1/pins", RoleViewer, false, answer(s, Backend.Pins)},
		{get, "/api/v1/audit", RoleViewer, false, s.apiRecords},
		{post, "/api/v1/audit/verify", RoleViewer, false, s.apiVerify},
		{get, "/api/v1/usage", RoleViewer, false, s.apiUsage},
		{get, "/api/v1/usage/hours", RoleViewer, false, s.apiHours},
		{get, "/api/v1/events", RoleViewer, false, s.apiEvents},
	}, s.pageRoutes()...)
}

// Limits on lists.
const (
	defaultLimit = 50
	maxLimit     = 500
)

// fail sends an error: a page to a browser that asks for one, else application/problem+json.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		p = Problemf(http.StatusRequestEntityTooLarge, "too_long", "the request has more than %d bytes", tooLong.Limit)
	} else if !errors.As(err, &p) {
		p = Problemf(http.StatusInternalServerError, "internal", "waldo could not do this: %v", err)
	}
	shown := *p
	shown.Title, shown.Type = http.StatusText(p.Status), "about:blank"
	if p.Status == http.StatusUnauthorized && strings.HasPrefix(r.URL.Path, "/api/") {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if !strings.HasPrefix(r.URL.Path, "/api/") && strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.failPage(w, r, &shown)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(shown.Status)
	_ = json.NewEncoder(w).Encode(shown)
}

func reply(q *request, v any, err error) error {
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(q.w).Encode(v)
}

// answer answers with what a method of the backend returns.
func answer[T any](s *Server, from func(Backend, context.Context) (T, error)) func(*request) error {
	return func(q *request) error {
		v, err := from(s.o.Backend, q.Context())
		return reply(q, v, err)
	}
}

// answerOne answers with what the path's id names.
func answerOne[T any](
	s *Server, from func(b Backend, ctx context.Context, id string) (T, error),
) func(*request) error {
	return func(q *request) error {
		v, err := from(s.o.Backend, q.Context(), q.PathValue("id"))
		return reply(q, v, err)
	}
}

// answerPage answers with a part of a list.
func answerPage[T any](s *Server, from func(Backend, context.Context, Page) (T, error)) func(*request) error {
	return func(q *request) error {
		p, err := q.page()
		if err != nil {
			return err
		}
		v, err := from(s.o.Backend, q.Context(), p)
		return reply(q, v, err)
	}
}

// read decodes a request's JSON body. Unknown members are refused.
func read(q *request, into any) error {
	if kind, _, _ := strings.Cut(q.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return Problemf(http.StatusUnsupportedMediaType, "media_type", "send application/json")
	}
	b, err := io.ReadAll(q.Body)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return err
	}
	if err == nil {
		err = strictjson.Only(b, into)
	}
	if err != nil {
		return Problemf(http.StatusBadRequest, "body", "the body cannot be read: %v", err)
	}
	return nil
}

// page reads limit and cursor.
func (q *request) page() (Page, error) {
	n, err := q.whole("limit", defaultLimit, maxLimit)
	return Page{Limit: n, Cursor: q.URL.Query().Get("cursor")}, err
}

// act records an action before it is done, and how it ended.
func (s *Server) act(q *request, action, target string, do func() error) error {
	if err := s.o.Backend.Audit(q.Context(), q.who, Event{Action: action, Target: target, Result: "begun"}); err != nil {
		return err
	}
	err := do()
	e := Event{Action: action, Target: target, Result: "done"}
	if err != nil {
		e.Result, e.Why = "refused", err.Error()
	}
	return errors.Join(err, s.o.Backend.Audit(q.Context(), q.who, e))
}

// openAPI answers with the console's document, and in it the paths and schemas of the others.
func (s *Server) openAPI(q *request) error {
	own, err := files.ReadFile("openapi.json")
	if err != nil {
		return err
	}
	type document struct {
		Info       json.RawMessage                       `json:"info"`
		OpenAPI    string                                `json:"openapi"`
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components map[string]map[string]json.RawMessage `json:"components"`
		Security   json.RawMessage                       `json:"security,omitempty"`
	}
	var all document
	if err := json.Unmarshal(own, &all); err != nil {
		return err
	}
	for _, b := range s.o.API {
		var more document
		if err := json.Unmarshal(b, &more); err != nil {
			return err
		}
		for path, methods := range more.Paths {
			if all.Paths[path] == nil {
				all.Paths[path] = methods
			}
			maps.Copy(all.Paths[path], methods)
		}
		for kind, named := range more.Components {
			maps.Copy(all.Components[kind], named)
		}
	}
	return reply(q, all, nil)
}

func (s *Server) apiMe(q *request) error {
	return reply(q, map[string]any{
		"principal": q.who.Principal, "role": q.who.Role.String(), "csrf": q.csrf, "version": s.o.Version,
	}, nil)
}

func (s *Server) apiDraft(q *request) error {
	var in struct {
		Answering
		Verdict string `json:"verdict"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	switch in.Verdict {
	case "approve":
		in.Yes = true
	case "deny":
	default:
		return Problemf(http.StatusBadRequest, "verdict", "verdict is approve or deny")
	}
	c, err := s.o.Backend.Draft(q.Context(), q.who, q.PathValue("id"), in.Answering)
	return reply(q, c, err)
}

// signed is a drafted answer with its signature.
type signed struct {
	Draft     string          `json:"draft"`
	Assertion json.RawMessage `json:"assertion"`
}

func (s *Server) apiSettle(action string) func(*request) error {
	return func(q *request) error {
		var in signed
		if err := read(q, &in); err != nil {
			return err
		}
		id := q.PathValue("id")
		err := s.act(q, action, id, func() error {
			return s.o.Backend.Settle(q.Context(), q.who, id, action, in.Draft, in.Assertion)
		})
		if err != nil {
			return err
		}
		a, err := s.o.Backend.Approval(q.Context(), id)
		return reply(q, a, err)
	}
}

func (s *Server) apiInvited(q *request) error { return s.withSecret(q, s.o.Backend.Invited) }

func (s *Server) apiRootBegin(q *request) error { return s.withSecret(q, s.o.Backend.RootBegin) }

// withSecret begins a ceremony for which a terminal printed a secret. Wrong secrets are counted as failed logins.
func (s *Server) withSecret(q *request, begin func(context.Context, Who, string) (Ceremony, error)) error {
	var in struct {
		Secret string `json:"secret"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	c, err := begin(q.Context(), q.who, in.Secret)
	if err != nil {
		return cmp.Or(s.auditLogin(q, "enrol", q.who, err), err)
	}
	return reply(q, c, nil)
}

func (s *Server) apiRegister(q *request) error {
	var in struct {
		Credential json.RawMessage `json:"credential"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	c, err := s.o.Backend.Register(q.Context(), q.who, q.PathValue("draft"), in.Credential)
	return reply(q, c, err)
}

// apiSign hands the signature of a draft over.
func (s *Server) apiSign(
	action string, sign func(b Backend, ctx context.Context, who Who, draft string, assertion json.RawMessage) error,
) func(*request) error {
	return func(q *request) error {
		var in struct {
			Assertion json.RawMessage `json:"assertion"`
		}
		if err := read(q, &in); err != nil {
			return err
		}
		err := s.act(q, action, "", func() error {
			return sign(s.o.Backend, q.Context(), q.who, q.PathValue("draft"), in.Assertion)
		})
		return reply(q, map[string]string{"state": "waiting for the terminal"}, err)
	}
}

// filter reads the fields of a filter from the query.
func filter(v url.Values, at map[string]*string) {
	for name, to := range at {
		*to = v.Get(name)
	}
}

func (s *Server) apiCalls(q *request) error {
	l, _, err := s.calls(q)
	return reply(q, l, err)
}

// calls returns the calls that a request asks for, and its filter.
func (s *Server) calls(q *request) (l List[Call], f CallFilter, err error) {
	p, err := q.page()
	if err != nil {
		return l, f, err
	}
	if f, err = callFilter(q.URL.Query()); err != nil {
		return l, f, err
	}
	l, err = s.o.Backend.Calls(q.Context(), f, p)
	return l, f, err
}

func callFilter(v url.Values) (f CallFilter, err error) {
	filter(v, map[string]*string{
		"capability": &f.Capability, "principal": &f.Principal, "effect": &f.Effect, "status": &f.Status,
		"session": &f.Session, "result": &f.Result, "agent": &f.Agent, "text": &f.Text,
	})
	for name, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := v.Get(name)
		if text == "" {
			continue
		}
		if d, bad := time.ParseDuration(text); bad == nil && d > 0 {
			*to = time.Now().Add(-d)
		} else if *to, err = time.Parse(time.RFC3339, text); err != nil {
			return f, Problemf(http.StatusBadRequest, name, "%s is a time, as in 2026-11-24T08:00:00Z, or a duration, as in 24h", name)
		}
	}
	return f, nil
}

func egressFilter(v url.Values) (f EgressFilter) {
	filter(v, map[string]*string{"text": &f.Text, "result": &f.Result, "server": &f.Server})
	return f
}

func (s *Server) apiEgress(q *request) error {
	l, err := s.o.Backend.Egress(q.Context(), egressFilter(q.URL.Query()))
	return reply(q, l, err)
}

func (s *Server) apiUsage(q *request) error {
	span, err := q.whole("hours", maxHours, maxHours)
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Usage(q.Context(), span, q.URL.Query().Get("by") == "agent")
	return reply(q, l, err)
}

// order does what a POST orders. The API answers with JSON; a form's page goes on to a list.
func (s *Server) order(q *request, action, target, list string, said map[string]string, do func() error) error {
	err := s.act(q, action, target, do)
	if strings.HasPrefix(q.URL.Path, "/api/") {
		return reply(q, said, err)
	}
	var late *Problem
	if err != nil && !(errors.As(err, &late) && late.Status == http.StatusAccepted) { // accepted: it is in force
		return err
	}
	return redirect(q, list)
}

// stop stops or releases a session or principal.
func (s *Server) stop(release bool) func(*request) error {
	action := map[bool]string{false: "stop", true: "release"}[release]
	return func(q *request) error {
		name := q.PathValue("name")
		return s.order(q, action, name, "/sessions", map[string]string{"name": name, "state": action},
			func() error { return s.o.Backend.Stop(q.Context(), q.who, name, release) })
	}
}

func (s *Server) sandbox(act string) func(*request) error {
	return func(q *request) error {
		name := q.PathValue("name")
		return s.order(q, "sandbox."+act, name, "/sandboxes", map[string]string{"name": name, "act": act},
			func() error { return s.o.Backend.SandboxAct(q.Context(), q.who, name, act) })
	}
}

func (s *Server) apiDryRun(q *request) error {
	var in DryRun
	if err := read(q, &in); err != nil {
		return err
	}
	d, err := s.dryRun(q, in)
	return reply(q, d, err)
}

// dryRun decides a call that is not made. The log has that somebody asked.
func (s *Server) dryRun(q *request, in DryRun) (d Decision, err error) {
	err = s.act(q, "contracts.dry_run", in.Capability, func() (err error) {
		d, err = s.o.Backend.DryRun(q.Context(), q.who, in)
		return err
	})
	return d, err
}

func (s *Server) apiWhatIf(q *request) error {
	var in struct {
		Text string `json:"text"`
	}
	if err := read(q, &in); err != nil {
		return err
	}
	w, err := s.whatIf(q, in.Text)
	return reply(q, w, err)
}

func (s *Server) whatIf(q *request, text string) (w WhatIf, err error) {
	err = s.act(q, "contracts.what_if", "", func() (err error) {
		w, err = s.o.Backend.WhatIf(q.Context(), text)
		return err
	})
	return w, err
}

func (s *Server) apiRecords(q *request) error {
	l, _, err := s.records(q)
	return reply(q, l, err)
}

// records returns the records that a request asks for, and its filter.
func (s *Server) records(q *request) (l List[Record], f RecordFilter, err error) {
	p, err := q.page()
	if err != nil {
		return l, f, err
	}
	filter(q.URL.Query(), map[string]*string{"kind": &f.Kind, "without": &f.Without, "text": &f.Text, "id": &f.ID})
	l, err = s.o.Backend.Records(q.Context(), f, p)
	return l, f, err
}

func (s *Server) apiVerify(q *request) error {
	var report json.RawMessage
	err := s.act(q, "audit.verify", "", func() (err error) {
		report, err = s.o.Backend.Verify(q.Context())
		return err
	})
	return reply(q, report, err)
}

// maxHours is how far back the counts over time go.
const maxHours = 31 * 24

func (s *Server) apiHours(q *request) error {
	span, err := q.whole("hours", 24, maxHours)
	if err != nil {
		return err
	}
	step, err := q.whole("step", 1, span)
	if err != nil {
		return err
	}
	l, err := s.o.Backend.Hours(q.Context(), span, step)
	return reply(q, l, err)
}

// whole reads a number from 1 to most from the query.
func (q *request) whole(name string, usual, most int) (int, error) {
	text := q.URL.Query().Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, Problemf(http.StatusBadRequest, name, "%s is a number from 1 to %d", name, most)
	}
	return n, nil
}
