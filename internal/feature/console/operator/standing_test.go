package operator

import (
	"testing"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/presence"
)

// TestResults: a call has one result, its last word. A question ends with its answer, its time and its process, and so
// does the call that waits for it; a session says whether it runs, has ended or is stopped.
func TestResults(t *testing.T) {
	l := openLifelike(t)
	key := l.approver("ann", nil, "manager")
	person, viewer := l.login(site.RoleApprover), l.login(site.RoleOperator)
	asker, err := presence.New(l.store)
	if err != nil {
		t.Fatal(err)
	}
	n := call.Session(id.New(id.Session))
	l.r.Place = func(call.Session) audit.Place { return audit.Place{Asker: asker.Name, Folder: "/srv/shop"} }
	refund := func(order string) (string, string) {
		d := l.question("helpdesk.refund", `{"order":"`+order+`","amount":300,"currency":"EUR"}`, "os:1000", n)
		return d.Call.ID, l.wait(d)
	}
	yes, yesID := refund("A-1")
	no, noID := refund("A-2")
	open, _ := refund("A-3")
	runs := l.question("github.list_issues", `{"repo":"a"}`, "os:1000", n)
	answer := func(approvalID, verdict string) {
		t.Helper()
		c, status, code := person.draft(approvalID, "ann", verdict)
		if status == 200 {
			status, code = person.settle(approvalID, verdict, c.Draft, key.Get(c.Options.Challenge))
		}
		if status != 200 {
			t.Fatalf("%s: %d %s", verdict, status, code)
		}
	}
	answer(yesID, "approve")
	answer(noID, "deny")
	results := func() map[string]string {
		t.Helper()
		var got site.List[site.Call]
		viewer.do("GET", "/api/v1/calls?session="+string(n), nil, &got)
		by := map[string]string{}
		for _, c := range got.Items {
			by[c.ID] = c.Result
			if c.Folder != "/srv/shop" || c.Agent != "claude-code 2.1" || c.Gist == "" {
				t.Errorf("the call is not named: %+v", c)
			}
		}
		return by
	}
	state := func() string {
		t.Helper()
		var a site.Agent
		viewer.do("GET", "/api/v1/agents/"+string(n), nil, &a)
		return a.State
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v, the session is %s", what, results(), state())
			}
		}
	}
	await("control", func() bool {
		got := results()
		return got[yes] == site.Approved && got[no] == site.DeniedBy && got[open] == site.WaitsFor &&
			got[runs.Call.ID] == site.Running && state() == site.Running
	})
	var done site.List[site.Answered]
	viewer.do("GET", "/api/v1/answered", nil, &done)
	if len(done.Items) != 2 || done.Items[0].ID != no || len(done.Items[0].Answers) != 1 || done.Items[0].Answers[0].Yes ||
		done.Items[1].Answers[0].By != "approver:ann" || !done.Items[1].Answers[0].Passkey || done.Items[1].Gist == "" {
		t.Errorf("answered: %+v", done.Items)
	}
	var one site.Approval
	viewer.do("GET", "/api/v1/approvals/"+yesID, nil, &one)
	if one.Asker == nil || one.Asker.ID != yes || len(one.Answers) != 1 || one.Answers[0].By != "approver:ann" {
		t.Errorf("the answered question: %+v", one)
	}

	// A second call uses the answer. The question stays as old as it is.
	q, _, err := l.k.Question(l.ctx, yesID)
	if err != nil {
		t.Fatal(err)
	}
	again := l.question("helpdesk.refund", `{"order":"A-1","amount":300,"currency":"EUR"}`, "os:1000", n)
	if _, err := l.r.Outcome(l.ctx, again, call.Result{Status: facts.OK, ApprovalID: yesID, Facts: facts.New()}); err != nil {
		t.Fatal(err)
	}
	await("used", func() bool {
		viewer.do("GET", "/api/v1/answered", nil, &done)
		return len(done.Items) == 2 && done.Items[0].ID == again.Call.ID
	})
	if one := done.Items[0]; one.At != q.Created.UTC().Format(audit.TimeLayout) || one.WaitMS <= 0 {
		t.Errorf("an answer that a second call used: asked %s, waited %v ms; asked in truth %s", one.At, one.WaitMS, q.Created)
	}

	l.k.Gone = presence.Gone(l.store) // the process ends, and with it what waits
	if err := asker.Close(); err != nil {
		t.Fatal(err)
	}
	await("ended", func() bool {
		got := results()
		return got[runs.Call.ID] == site.Lost && state() == "ended" && got[yes] == site.Approved
	})
	if status, code := viewer.do("POST", "/api/v1/agents/"+string(n)+"/stop", nil, nil); status >= 300 {
		t.Fatal(status, code)
	}
	if got := state(); got != "stopped" {
		t.Errorf("after a stop the session is %s", got)
	}
	viewer.do("POST", "/api/v1/agents/"+string(n)+"/release", nil, nil)
	if got := state(); got != "ended" {
		t.Errorf("after a release the session is %s", got)
	}
}

// TestNoAnswer: a question that nobody answered in time ends the waiting of its call.
func TestNoAnswer(t *testing.T) {
	l := openLifelike(t)
	viewer := l.login(site.RoleViewer)
	count := func(result string) int {
		t.Helper()
		var got site.List[site.Call]
		if status, code := viewer.do("GET", "/api/v1/calls?result="+result, nil, &got); status != 200 {
			t.Fatal(status, code)
		}
		return len(got.Items)
	}
	if waits, none := count("waiting"), count("no+answer"); waits != 3 || none != 0 {
		t.Fatalf("control: %d wait, %d without an answer", waits, none)
	}
	l.later.Store(int64(2 * time.Hour))
	if waits, none := count("waiting"), count("no+answer"); waits != 0 || none != 3 {
		t.Errorf("%d wait, %d without an answer", waits, none)
	}
}

// TestCallFilters: calls are found by the agent, the folder, a part of the arguments, and time.
func TestCallFilters(t *testing.T) {
	l := openLifelike(t)
	viewer := l.login(site.RoleViewer)
	count := func(query string) int {
		t.Helper()
		var got site.List[site.Call]
		if status, code := viewer.do("GET", "/api/v1/calls?limit=500&"+query, nil, &got); status != 200 {
			t.Fatal(query, status, code)
		}
		return len(got.Items)
	}
	if n := count("text=a-1204"); n != 1 {
		t.Errorf("by an argument: %d", n)
	}
	mine, theirs, all := count("agent=claude&since=6h"), count("agent=HELPDESK&since=6h"), count("since=6h")
	if mine == 0 || theirs == 0 || mine+theirs != all || count("agent=mika/shop&since=6h") != mine {
		t.Errorf("by agent: %d and %d of %d", mine, theirs, all)
	}
	if later := count("since=1h"); later == 0 || later >= all {
		t.Errorf("by time: %d of %d", later, all)
	}
	if status, code := viewer.do("GET", "/api/v1/calls?since=yesterday", nil, nil); status != 400 || code != "since" {
		t.Errorf("a bad time: %d %s", status, code)
	}
}

// TestUsageAgrees: the counts by capability, by agent and by the hour of one period have one sum.
func TestUsageAgrees(t *testing.T) {
	l := openLifelike(t)
	viewer := l.login(site.RoleViewer)
	sum := func(path string) (calls, denied int) {
		t.Helper()
		var got struct{ Items []struct{ Calls, Denied int } }
		if status, code := viewer.do("GET", path, nil, &got); status != 200 {
			t.Fatal(path, status, code)
		}
		for _, u := range got.Items {
			calls, denied = calls+u.Calls, denied+u.Denied
		}
		return calls, denied
	}
	calls, denied := sum("/api/v1/usage/hours?hours=24")
	for _, path := range []string{"/api/v1/usage?hours=24", "/api/v1/usage?hours=24&by=agent"} {
		if c, d := sum(path); c != calls || d != denied || c == 0 {
			t.Errorf("%s: %d calls, %d denied; by the hour %d and %d", path, c, d, calls, denied)
		}
	}
	table := l.op.usage(24, func(entry) site.Usage { return site.Usage{} })[0]
	chart, err := l.op.Hours(l.ctx, 24, 24)
	if err != nil || table.P95MS != chart.Items[0].P95MS || table.P50MS != chart.Items[0].P50MS || table.P95MS == 0 ||
		table.Failed == 0 {
		t.Errorf("the table has %v and %v ms, the chart %+v (%v)", table.P50MS, table.P95MS, chart.Items, err)
	}
}

// TestEgress: attempts of calls and of servers are in one list, added up, the refused first; the page of a server has
// its tools, faults and its own attempts alone.
func TestEgress(t *testing.T) {
	l := openLifelike(t)
	viewer := l.login(site.RoleViewer)
	var got site.List[site.Egress]
	viewer.do("GET", "/api/v1/egress", nil, &got)
	by, allowed := map[string]site.Egress{}, false
	for _, e := range got.Items {
		if allowed && !e.Allowed {
			t.Errorf("a refused one comes late: %+v", e)
		}
		allowed = e.Allowed
		by[e.Host] = e
	}
	if e := by["telemetry.example.net"]; e.Allowed || e.By != "run_python" || e.Times < 2 || e.Call == "" || e.Server {
		t.Errorf("of code: %+v", e)
	}
	if e := by["api.github.com"]; !e.Allowed || e.By != "github" || !e.Server || e.Times != 277 {
		t.Errorf("of a server: %+v", e)
	}
	viewer.do("GET", "/api/v1/egress?result=refused&text=github", nil, &got)
	if len(got.Items) != 1 || got.Items[0].Host != "stats.github-mcp.example" {
		t.Errorf("by text and result: %+v", got.Items)
	}
	var s site.UpstreamLife
	viewer.do("GET", "/api/v1/upstreams/github", nil, &s)
	if len(s.Definitions) != 4 || len(s.Egress) != 2 || s.Definitions[1].Approval != "denied" || s.Definitions[3].Calls == 0 {
		t.Errorf("the server: %+v", s)
	}
	if status, code := viewer.do("GET", "/api/v1/upstreams/none", nil, nil); status != 404 || code != "server.unknown" {
		t.Errorf("%d %s", status, code)
	}
}

// TestStoppedSession: a session that was stopped stays ended after its principal was let in again, while its process
// lives. The control is another session of that process.
func TestStoppedSession(t *testing.T) {
	x := newIndex(t.TempDir(), func() {})
	x.take(audit.Record{Kind: control.KindStop, Body: []byte(`{"name":"token:ci","session":"n_1"}`)})
	x.take(audit.Record{Kind: control.KindStop, Body: []byte(`{"name":"token:ci"}`)})
	fate := fates{stops: x.stops, gone: func(string) bool { return false }, ended: map[string]bool{}}
	nobody := func(session.Info) bool { return false }
	for n, want := range map[string]string{"n_1": "ended", "n_2": site.Running} {
		e := entry{Call: site.Call{Session: n, At: time.Now().Format(time.RFC3339)}, asker: "p"}
		if got := (&Operator{}).state(fate, e, nobody); got != want {
			t.Errorf("%s is %s, want %s", n, got, want)
		}
	}
}
