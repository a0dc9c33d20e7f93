package site

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

func (f *fake) Contracts(context.Context) (List[Contract], error) {
	return List[Contract]{Items: []Contract{{Pattern: hostile, Approval: hostile, File: hostile, Line: 3, Text: hostile},
		{Pattern: "a", Denied: true}}}, nil
}

func (f *fake) Webhooks(context.Context) (List[Webhook], error) {
	one := Webhook{Name: hostile, Scheme: hostile, Target: hostile, Refused: []Refuse{{hostile, 3}}, Last: hostile,
		Why: hostile}
	out := one
	out.Out = true
	return List[Webhook]{Items: []Webhook{one, out}}, nil
}

func (f *fake) Deliveries(context.Context, string, Page) (List[Delivery], error) {
	return List[Delivery]{Items: []Delivery{{ID: hostile, Hook: hostile, Target: hostile, State: hostile, Reason: hostile,
		Call: hostile, Event: hostile, Type: hostile}}, Next: hostile, Total: 1}, nil
}

func (f *fake) DeliveryAct(_ context.Context, _ Who, id, act string) error {
	f.acts = append(f.acts, act+" "+id)
	return nil
}

func (f *fake) DryRun(_ context.Context, _ Who, d DryRun) (Decision, error) {
	f.acts = append(f.acts, "dry-run "+d.Capability)
	if string(d.Args) == "[" {
		return Decision{}, Problemf(http.StatusBadRequest, "args", "%s", hostile)
	}
	return Decision{Effect: "ask", Reasons: []call.Reason{{Code: hostile, Text: hostile, File: hostile}}, Role: hostile,
		Lines: []string{hostile}, Pattern: hostile}, nil
}

func (f *fake) Current(context.Context) (string, error) { return "version: 1\n", nil }

func (f *fake) WhatIf(_ context.Context, text string) (WhatIf, error) {
	f.acts = append(f.acts, "what-if "+text)
	if text == "" {
		return WhatIf{Problems: []string{hostile}}, nil
	}
	return WhatIf{Calls: 3, Differ: 1, Unknown: 1, Changes: []Change{{Capability: hostile, Now: hostile, Then: hostile,
		Examples: []string{hostile}, Reasons: []call.Reason{{Code: hostile}}}},
		Unjudged: []Unjudged{{Capability: hostile, Why: hostile, Fields: []string{hostile}, Examples: []string{hostile}}}}, nil
}

func (f *fake) Hours(_ context.Context, span, step int) (List[Hour], error) {
	l := List[Hour]{}
	for i := range span / step {
		l.Items = append(l.Items, Hour{Start: time.Date(2026, 11, 23, i*step, 0, 0, 0, time.UTC), Calls: 2 * i, Denied: i / 2,
			Asked: i / 3, Failed: 1, P50MS: float64(i), P95MS: float64(3 * i), CPUMS: 100})
	}
	return l, nil
}

func (f *fake) Usage(context.Context, int, bool) (List[Usage], error) {
	return List[Usage]{Items: []Usage{{Capability: hostile, Agent: hostile, Calls: 3}}, Total: 300}, nil
}

func (f *fake) Here(context.Context) (Here, error) {
	return Here{Machine: hostile, Environment: hostile, Config: hostile, Since: time.Now(), Open: 3}, nil
}

func (f *fake) Recent(context.Context) ([]Record, error) {
	body, _ := json.Marshal(map[string]any{"effect": "deny", "capability": hostile, "agent": hostile, "call_id": hostile,
		"reasons": []call.Reason{{Code: hostile, Text: hostile}}})
	return []Record{{Kind: "decision", At: hostile, Body: body}, {Kind: hostile, Body: []byte(`{"by":"x"}`)}}, nil
}

func (f *fake) Answered(context.Context, Page) (List[Answered], error) {
	return List[Answered]{Items: []Answered{{Call: hostileCall, Answers: []Answer{{By: hostile, Reason: hostile, At: hostile}}},
		{Call: hostileCall, Answers: []Answer{}}}, Next: "7"}, nil
}

func (f *fake) Agent(context.Context, string) (Agent, error) {
	return Agent{Session: hostile, Principal: hostile, Agent: hostile, Folder: hostile, Channel: hostile, State: Running, Waiting: 2}, nil
}

func (f *fake) Egress(context.Context, EgressFilter) (List[Egress], error) {
	return List[Egress]{Items: []Egress{{Attempt: facts.Attempt{Host: hostile, Why: hostile}, By: hostile, Agent: hostile,
		Call: hostile}, {Attempt: facts.Attempt{Host: hostile, Allowed: true}, By: hostile, Server: true}}, Total: 2}, nil
}

func (f *fake) Upstream(context.Context, string) (UpstreamLife, error) {
	pins, _ := f.Pins(context.Background())
	reached, _ := f.Egress(context.Background(), EgressFilter{})
	return UpstreamLife{Upstream: Upstream{Name: hostile, Target: hostile, Health: "failing", Why: hostile, OpenUntil: hostile}, Pins: pins.Items,
		Definitions: []Definition{{Usage: Usage{Capability: hostile}, Approval: hostile, File: hostile, Danger: 3}},
		Faults:      []Call{hostileCall}, Egress: reached.Items, Restarts: true}, nil
}

// roles is the least role for each path, by hand: the route table is held against it.
var roles = map[string]Role{
	"GET /{$}": RoleViewer, "POST /logout": RoleViewer, "GET /approvals": RoleViewer, "GET /approvals/{id}": RoleViewer,
	"GET /approvals/{id}/state": RoleViewer,
	"GET /calls":                RoleViewer, "GET /calls/{id}": RoleViewer, "GET /sessions": RoleViewer, "GET /sessions/{name}": RoleViewer,
	"GET /servers/{name}": RoleViewer, "POST /servers/{name}/restart": RoleOperator,
	"POST /api/v1/upstreams/{name}/restart": RoleOperator, "GET /egress": RoleViewer,
	"GET /api/v1/answered": RoleViewer, "GET /api/v1/agents/{id}": RoleViewer, "GET /api/v1/upstreams/{id}": RoleViewer,
	"GET /api/v1/egress": RoleViewer, "GET /sandboxes": RoleViewer,
	"GET /servers": RoleViewer, "GET /contracts": RoleViewer, "POST /contracts/dry-run": RoleViewer,
	"POST /contracts/what-if": RoleOperator, "GET /pins": RoleViewer, "GET /usage": RoleViewer, "GET /log": RoleViewer,
	"POST /log/verify": RoleViewer, "POST /sessions/{name}/stop": RoleOperator, "POST /sessions/{name}/release": RoleOperator,
	"POST /sandboxes/{name}/pause": RoleOperator, "POST /sandboxes/{name}/resume": RoleOperator,
	"POST /sandboxes/{name}/stop": RoleOperator, "GET /webhooks": RoleViewer,
	"POST /webhooks/{id}/retry": RoleOperator, "POST /webhooks/{id}/drop": RoleOperator,

	"GET /api/v1/me": RoleViewer, "GET /api/v1/approvals": RoleViewer, "GET /api/v1/approvals/{id}": RoleViewer,
	"POST /api/v1/approvals/{id}/draft": RoleApprover, "POST /api/v1/approvals/{id}/approve": RoleApprover,
	"POST /api/v1/approvals/{id}/deny": RoleApprover, "GET /api/v1/approvers": RoleViewer, "GET /api/v1/calls": RoleViewer,
	"GET /api/v1/calls/{id}": RoleViewer, "GET /api/v1/agents": RoleViewer, "POST /api/v1/agents/{name}/stop": RoleOperator,
	"POST /api/v1/agents/{name}/release": RoleOperator, "GET /api/v1/sandboxes": RoleViewer,
	"POST /api/v1/sandboxes/{name}/pause": RoleOperator, "POST /api/v1/sandboxes/{name}/resume": RoleOperator,
	"POST /api/v1/sandboxes/{name}/stop": RoleOperator, "GET /api/v1/upstreams": RoleViewer,
	"GET /api/v1/contracts": RoleViewer, "POST /api/v1/contracts/dry-run": RoleViewer,
	"POST /api/v1/contracts/what-if": RoleOperator, "GET /api/v1/pins": RoleViewer, "GET /api/v1/unsettled": RoleViewer, "GET /api/v1/audit": RoleViewer,
	"POST /api/v1/audit/verify": RoleViewer, "GET /api/v1/usage": RoleViewer, "GET /api/v1/usage/hours": RoleViewer,
	"GET /api/v1/events": RoleViewer, "GET /api/v1/webhooks": RoleViewer, "GET /api/v1/deliveries": RoleViewer,
	"POST /api/v1/deliveries/{id}/retry": RoleOperator, "POST /api/v1/deliveries/{id}/drop": RoleOperator,
}

// open are the paths that need no login.
var open = map[string]bool{
	"GET /login": true, "POST /login": true, "GET /login/oidc": true, "GET /login/oidc/callback": true, "GET /enrol": true, "GET /api/v1/openapi.json": true,
	"POST /api/v1/enrolment": true, "POST /api/v1/enrolment/{draft}/register": true,
	"POST /api/v1/enrolment/{draft}/finish": true, "POST /api/v1/enrolment-root": true,
	"POST /api/v1/enrolment-root/{draft}/sign": true, "POST /api/v1/login": true, "POST /api/v1/login/{draft}": true,
}

// TestRoles: each path lets in its least role and those above it, and no lesser one. Each action of a login leaves a
// record before it is done. A draft leaves none; the answer with it does.
func TestRoles(t *testing.T) {
	for _, r := range newServer(&fake{}).routes() {
		name := r.Method + " " + r.Path
		least, known := roles[name]
		if r.Open != open[name] || known == r.Open {
			t.Errorf("%s: open %v, in the table %v", name, r.Open, known)
		}
		if r.Open {
			continue
		}
		path := strings.NewReplacer("{$}", "", "{id}", "c_1", "{name}", "box").Replace(r.Path)
		for role := RoleViewer; role <= RoleOperator; role++ {
			f := &fake{role: role}
			s := newServer(f)
			in := enter(t, s)
			body := `{}`
			if !strings.HasPrefix(path, "/api/") && r.Method == http.MethodPost {
				in["Content-Type"], body = "application/x-www-form-urlencoded", url.Values{"csrf": {in["X-CSRF-Token"]}}.Encode()
			}
			before := len(f.events)
			status, why := 0, ""
			func() {
				defer func() { _ = recover() }() // the backend of this test lacks some methods: it was asked
				w := visit(s, r.Method, path, body, in)
				status, why = w.Code, code(w)
			}()
			if refused := status == http.StatusForbidden && why == "role"; refused != (role < least) {
				t.Errorf("%s as %s: %d %s", name, role, status, why)
			}
			if role < least && (len(f.acts) > 0 || f.settled > 0) {
				t.Errorf("%s as %s was done", name, role)
			}
			if r.Method == http.MethodPost && role >= least && !strings.HasSuffix(path, "/draft") &&
				status != http.StatusBadRequest && len(f.events) == before {
				t.Errorf("%s as %s left no record", name, role)
			}
		}
		in := map[string]string{"Content-Type": "application/json"}
		if w := visit(newServer(&fake{}), r.Method, path, `{}`, in); w.Code != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d", name, w.Code)
		}
	}
	if len(roles)+len(open) != len(newServer(&fake{}).routes()) {
		t.Error("the table has paths that there are not")
	}
}

// TestContractForms: the forms of the page show every result as inert text, and keep the typed values.
func TestContractForms(t *testing.T) {
	f := &fake{role: RoleOperator}
	s := newServer(f)
	in := enter(t, s)
	form := map[string]string{"Cookie": in["Cookie"], "Content-Type": "application/x-www-form-urlencoded"}
	for _, row := range []struct {
		path, want string
		fields     url.Values
		status     int
		act        string
	}{
		{"/contracts/dry-run", `<span class="effect-ask"><span class="pill warn">`,
			url.Values{"capability": {hostile}, "args": {`{"a":"` + hostile + `"}`}}, 200, "dry-run " + hostile},
		{"/contracts/dry-run", `class="note bad"`, url.Values{"capability": {"a.b"}, "args": {"["}}, 400, "dry-run a.b"},
		{"/contracts/what-if", "1 of 3 calls would be decided otherwise", url.Values{"text": {"a\r\nb " + hostile}}, 200,
			"what-if a\nb " + hostile},
		{"/contracts/what-if", "Nothing was compared", url.Values{"text": {""}}, 200, "what-if "},
	} {
		f.acts = nil
		if w := visit(s, "POST", row.path, row.fields.Encode(), form); w.Code != 403 || len(f.acts) > 0 {
			t.Errorf("%s without the token: %d %q", row.path, w.Code, f.acts)
		}
		row.fields.Set("csrf", in["X-CSRF-Token"])
		w := visit(s, "POST", row.path, row.fields.Encode(), form)
		page := w.Body.String()
		if w.Code != row.status || !strings.Contains(page, row.want) || len(f.acts) != 1 || f.acts[0] != row.act {
			t.Errorf("%s: %d %q, without %q:\n%s", row.path, w.Code, f.acts, row.want, page)
		}
		for _, bad := range []string{"<script>alert", "<img", "onerror=alert(1)>"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: the page holds %q:\n%s", row.path, bad, page)
			}
		}
		if typed := row.fields.Get("args"); typed != "" && !strings.Contains(html.UnescapeString(page), typed) {
			t.Errorf("%s: the page lost what was typed:\n%s", row.path, page)
		}
	}
}

// TestConfigurationText: the text of waldo.yaml is on the page of an operator alone.
func TestConfigurationText(t *testing.T) {
	for role := RoleViewer; role <= RoleOperator; role++ {
		s := newServer(&fake{role: role})
		page := visit(s, "GET", "/contracts", "", enter(t, s)).Body.String()
		if shown := strings.Contains(page, "version: 1"); shown != (role == RoleOperator) ||
			strings.Contains(page, "/contracts/what-if") != shown || !strings.Contains(page, "/contracts/dry-run") {
			t.Errorf("%s: shown %v:\n%s", role, shown, page)
		}
	}
}

// TestCharts: a chart's drawing stays in its frame, and its table has each hour.
func TestCharts(t *testing.T) {
	l, _ := (&fake{}).Hours(t.Context(), 24, 1)
	for _, c := range charts(l.Items, periods[0]) {
		if len(c.Rows) != 24 || len(c.Rows[0].Cells) != len(c.Series) || len(c.Bars)+len(c.Lines) == 0 {
			t.Errorf("%s: %d rows, %d bars, %d lines", c.ID, len(c.Rows), len(c.Bars), len(c.Lines))
		}
		for _, b := range c.Bars {
			if strings.HasPrefix(b.Y, "-") || strings.Contains(b.H, "NaN") {
				t.Errorf("%s: a bar outside: %+v", c.ID, b)
			}
		}
	}
	for _, c := range charts(make([]Hour, 3), periods[0]) {
		if len(c.Bars)+len(c.Lines) != 0 || strings.Contains(c.Top, "NaN") {
			t.Errorf("no calls: %+v", c)
		}
	}
	for v, want := range map[float64]float64{0: 1, 1: 1, 3: 5, 61: 100, 101: 200, 0.03: 0.05} {
		if got := ceiling(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("ceiling(%v) is %v", v, got)
		}
	}
}
