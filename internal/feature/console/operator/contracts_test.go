package operator

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// TestContracts: each contract names its line and shows it, until the file changes.
func TestContracts(t *testing.T) {
	l := openLifelike(t)
	b := l.login(site.RoleViewer)
	var all struct{ Items []site.Contract }
	find := func(pattern string) site.Contract {
		all.Items = nil
		if status, code := b.do("GET", "/api/v1/contracts", nil, &all); status != 200 {
			t.Fatal(status, code)
		}
		i := slices.IndexFunc(all.Items, func(c site.Contract) bool { return c.Pattern == pattern })
		if i < 0 {
			t.Fatalf("no %s: %+v", pattern, all)
		}
		return all.Items[i]
	}
	c := find("postgres.execute")
	if c.Line != 11 || c.Text != "  postgres.execute:\n    mode: high_risk\n    approval: {by: manager, need: 2}" ||
		c.Approval != "always, by manager, 2 approvers" || c.Server != "postgres" {
		t.Errorf("%+v", c)
	}
	one, create := find("postgres.query"), find("github.create_*") // a server has one sandbox, whatever a tool's class is
	if c.Isolation != one.Isolation || create.Server != "github" || create.Transport != "mcp" || create.Isolation != one.Isolation {
		t.Errorf("%+v, %+v, %+v", c, one, create)
	}
	if c := find("run_python"); c.Network != "api.example.com" || c.Transport != "sandboxed_exec" {
		t.Errorf("%+v", c)
	}
	if err := os.WriteFile(l.cfg.File, []byte("# another\n"+lifelikeConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := find("postgres.execute"); c.Text != "" {
		t.Errorf("a changed file is shown as the contract in force: %q", c.Text)
	}
	if text, err := l.op.Current(l.ctx); text != "" || err != nil {
		t.Errorf("a changed file is the configuration in force: %q", text)
	}
}

// TestDryRun: a viewer learns how a call would be decided. Nothing is recorded as a call; the log has the action.
func TestDryRun(t *testing.T) {
	l := openLifelike(t)
	b := l.login(site.RoleViewer)
	before := l.decisions()
	for _, row := range []struct{ capability, args, want, line string }{
		{"github.get_file", `{}`, "allow", "github.*:            {mode: read, approval: none, timeout_seconds: 15}"},
		{"github.delete_repo", `{}`, "deny", "github.delete_*:     deny"},
		{"helpdesk.refund", `{"amount":101}`, "ask", `approval: {when: "args.amount > 100", by: manager}`},
		{"helpdesk.refund", `{"amount":5001}`, "deny", `- {when: "args.amount > 5000", deny: true, reason: "finance makes ` +
			`refunds above 5000"}`},
		{"unheard.of", `{}`, "deny", ""},
	} {
		var d site.Decision
		if status, code := b.do("POST", "/api/v1/contracts/dry-run",
			site.DryRun{Capability: row.capability, Args: []byte(row.args)}, &d); status != 200 {
			t.Fatal(status, code)
		}
		if d.Effect != row.want || len(d.Lines) != len(d.Reasons) || d.Lines[0] != row.line {
			t.Errorf("%s %s: %+v", row.capability, row.args, d)
		}
	}
	if status, code := b.do("POST", "/api/v1/contracts/dry-run",
		site.DryRun{Capability: "github.get_file", Args: []byte(`[1]`)}, nil); status != 400 || code != "args" {
		t.Errorf("arguments that are no object: %d %s", status, code)
	}
	if after := l.decisions(); after != before {
		t.Errorf("%d decisions are recorded", after-before)
	}
	var records struct{ Items []site.Record }
	if b.do("GET", "/api/v1/audit?kind=console&text=contracts.dry_run", nil, &records); len(records.Items) != 12 ||
		!strings.Contains(string(records.Items[1].Body), `"github.get_file"`) {
		t.Errorf("%d records of the action: %+v", len(records.Items), records)
	}
}

// decisions counts the decisions in the log.
func (d *desk) decisions() (n int) {
	d.t.Helper()
	_, err := audit.Select(d.ctx, audit.Dir(d.dir), audit.Selection{}, func(r audit.Record) error {
		if r.Kind == audit.KindDecision {
			n++
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// TestWhatIf: a changed configuration is compared with the last day's calls; calls whose decision depends
// on an argument that the log hides are not judged, and the argument is named.
func TestWhatIf(t *testing.T) {
	l := openLifelike(t)
	secret := func(name, asked, logged string) {
		hidden := audit.Recorder{Log: l.r.Log, Args: func(policy.Decision) strictjson.Value {
			v, _ := strictjson.Parse([]byte(logged))
			return v
		}}
		a, _ := call.ParseArgs([]byte(asked))
		d := l.policy.Decide(call.Call{ID: id.New(id.Call), Capability: call.Capability(name), Args: a, Channel: "mcp"})
		if err := hidden.Decision(l.ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	secret("helpdesk.refund", `{"amount":1,"order":"hunter2"}`, `{"amount":1,"order":"[SECRET]"}`)
	secret("helpdesk.refund", `{"amount":2}`, `null`)
	secret("helpdesk.close", `{"amount":1,"order":"hunter2"}`, `{"amount":1,"order":"[SECRET]"}`)
	// unjudged lists the calls that are not judged, without their ids.
	unjudged := func(w site.WhatIf) string {
		var all []string
		for _, u := range w.Unjudged {
			if len(u.Examples) != u.Count || u.Fields == nil {
				t.Errorf("%+v", u)
			}
			all = append(all, fmt.Sprintf("%d %s %s %q", u.Count, u.Capability, u.Why, u.Fields))
		}
		return strings.Join(all, "; ")
	}
	const unknown, without = "1 helpdesk.refund it depends on arguments that the log has redacted [\"args.amount\"]",
		"1 helpdesk.refund it depends on the arguments, and the log does not hold them []"
	b := l.login(site.RoleOperator)
	ask := func(text string) (w site.WhatIf) {
		t.Helper()
		if status, code := b.do("POST", "/api/v1/contracts/what-if", map[string]string{"text": text}, &w); status != 200 {
			t.Fatal(status, code)
		}
		return w
	}
	w := ask(lifelikeConfig)
	if w.Differ != 0 || w.Unknown != 2 || w.Same+w.Unknown != w.Calls || w.Calls < 100 || w.Older != 0 ||
		unjudged(w) != without+"; "+unknown || time.Since(w.Since) < 23*time.Hour {
		t.Errorf("the same text: %+v", w)
	}
	w = ask(strings.Replace(lifelikeConfig, "args.amount > 100", "args.amount > 10", 1))
	if len(w.Changes) != 1 || w.Changes[0].Capability != "helpdesk.refund" || w.Changes[0].Now != "allow" ||
		w.Changes[0].Then != "ask, by manager" || w.Changes[0].Count != w.Differ || w.Unknown != 2 {
		t.Errorf("a lower bound: %+v", w)
	}
	var one site.CallLife
	if status, _ := b.do("GET", "/api/v1/calls/"+w.Changes[0].Examples[0], nil, &one); status != 200 ||
		one.Capability != "helpdesk.refund" {
		t.Errorf("the example: %d %+v", status, one.Call)
	}
	w = ask(strings.Replace(lifelikeConfig, "helpdesk.*:          {mode: read, approval: none}", "helpdesk.*: deny", 1))
	if i := slices.IndexFunc(w.Changes, func(c site.Change) bool { return c.Capability == "helpdesk.close" }); i < 0 ||
		w.Changes[i].Then != "deny" || w.Unknown != 2 {
		t.Errorf("without a condition: %+v", w)
	}
	w = ask(strings.Replace(lifelikeConfig, "helpdesk.*:          {mode: read, approval: none}",
		`helpdesk.*: {mode: read, approval: {when: "args.amount == 2 || args.order == 'A'"}}`, 1))
	if got := unjudged(w); got != "1 helpdesk.close it depends on arguments that the log has redacted [\"args.order\"]; "+without+
		"; "+unknown {
		t.Errorf("a condition of the changed text alone: %s", got)
	}
	w = ask(strings.Replace(lifelikeConfig, "need: 2", "need: 1", 1))
	if len(w.Changes) != 1 || w.Changes[0].Now != "ask, by manager, 2 approvers" || w.Changes[0].Then != "ask, by manager" {
		t.Errorf("fewer approvers: %+v", w)
	}
	w = ask(strings.Replace(lifelikeConfig, "mode: high_risk", "mode: hihg_risk", 1))
	if len(w.Problems) == 0 || !strings.Contains(w.Problems[0], "line 12") || w.Calls != 0 {
		t.Errorf("a mistake: %+v", w)
	}
	if l.policy.Digest() != l.op.o.Waldo.Policy().Digest() {
		t.Error("the changed text came into force")
	}
	l.op.whatIf.Lock()
	if status, code := b.do("POST", "/api/v1/contracts/what-if", map[string]string{"text": ""}, nil); status != 429 ||
		code != "too_many" {
		t.Errorf("two at a time: %d %s", status, code)
	}
	l.op.whatIf.Unlock()
	for _, role := range []site.Role{site.RoleViewer, site.RoleApprover} {
		if status, code := l.login(role).do("POST", "/api/v1/contracts/what-if", map[string]string{"text": ""},
			nil); status != 403 || code != "role" {
			t.Errorf("%v: %d %s", role, status, code)
		}
	}
}

// TestHours: calls are counted in the hour of their record, by effect and end.
func TestHours(t *testing.T) {
	l := openLifelike(t)
	b := l.login(site.RoleViewer)
	get := func(query string) (h []site.Hour) {
		t.Helper()
		var list struct{ Items []site.Hour }
		if status, code := b.do("GET", "/api/v1/usage/hours"+query, nil, &list); status != 200 {
			t.Fatal(status, code)
		}
		return list.Items
	}
	sum := func(all []site.Hour) (s site.Hour) {
		for _, h := range all {
			s.Calls, s.Denied, s.Asked, s.Failed = s.Calls+h.Calls, s.Denied+h.Denied, s.Asked+h.Asked, s.Failed+h.Failed
		}
		return s
	}
	day, week := get(""), get("?hours=168&step=3")
	if len(day) != 24 || len(week) != 56 || !day[23].Start.Add(time.Hour).After(time.Now()) ||
		day[1].Start.Sub(day[0].Start) != time.Hour {
		t.Fatalf("%d and %d hours, %v", len(day), len(week), day[0].Start)
	}
	all := sum(week)
	if all.Calls != l.decisions() || all.Asked != 3 || all.Denied == 0 || all.Failed == 0 || sum(day).Calls >= all.Calls {
		t.Errorf("%+v of %d decisions", all, l.decisions())
	}
	usual := 0
	for _, h := range day {
		if h.P50MS > 0 && h.P50MS <= h.P95MS && h.P95MS < 2000 {
			usual++
		}
	}
	if usual < 20 {
		t.Errorf("%d hours with a latency: %+v", usual, day)
	}
	for query, want := range map[string]string{"?hours=0": "hours", "?hours=745": "hours", "?hours=5&step=6": "step",
		"?step=x": "step"} {
		if status, code := b.do("GET", "/api/v1/usage/hours"+query, nil, nil); status != 400 || code != want {
			t.Errorf("%s: %d %s", query, status, code)
		}
	}
}

// TestSpans: a quantile is never lower than the value, and at most 19 % higher.
func TestSpans(t *testing.T) {
	for _, ms := range []float64{0.1, 0.2, 1, 17.3, 180, 29_000, 3_600_000} {
		var s spans
		s.add(ms)
		if q := s.quantile(0.5); q < ms*0.999999 || q > ms*1.19 {
			t.Errorf("%v ms: %v", ms, q)
		}
	}
	all := hours{}
	for i := range 3 * maxHours {
		at := time.Date(2026, 1, 1, i, 0, 0, 0, time.UTC).Format(time.RFC3339)
		all.count(audit.Record{At: at, Kind: audit.KindDecision}, body{}, "")
	}
	all.count(audit.Record{At: "soon", Kind: audit.KindDecision}, body{}, "")
	if len(all) > 2*maxHours {
		t.Errorf("%d hours are kept", len(all))
	}
}

// TestAgentsPages: the pages of sessions hold each once, the last used first.
func TestAgentsPages(t *testing.T) {
	l := openLifelike(t)
	for i := range 7 {
		l.call("github.list_issues", `{}`, "os:1000", call.Session(fmt.Sprint("n_page", i)), 1)
	}
	b := l.login(site.RoleViewer)
	var seen []string
	for cursor := ""; ; {
		var page struct {
			Items []site.Agent
			Total int
			Next  string `json:"next_cursor"`
		}
		if status, code := b.do("GET", "/api/v1/agents?limit=4&cursor="+cursor, nil, &page); status != 200 {
			t.Fatal(status, code)
		}
		if page.Total != 9 {
			t.Errorf("%d sessions in all", page.Total)
		}
		for _, a := range page.Items {
			seen = append(seen, a.Session)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	want := []string{"n_page6", "n_page5", "n_page4", "n_page3", "n_page2", "n_page1", "n_page0"}
	if len(seen) != 9 || !slices.Equal(seen[:7], want) || seen[7] == seen[8] {
		t.Errorf("%q", seen)
	}
	if status, code := b.do("GET", "/api/v1/agents?cursor=x", nil, nil); status != 400 || code != "cursor" {
		t.Errorf("%d %s", status, code)
	}
}
