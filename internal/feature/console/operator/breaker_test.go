package operator

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/breakers"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
)

// The servers of the console show an open breaker while its process is at work.
func TestOpenBreaker(t *testing.T) {
	d := openWith(t, &contract.Config{Servers: map[string]contract.Server{"s": {Command: []string{"s"}}}})
	process, err := presence.New(d.store)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	for _, name := range []string{process.Name, "ended"} {
		b := breakers.Breaker{Server: "s", Process: name, Fails: 5, Until: until}
		if err := breakers.Note(d.ctx, d.store, b); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := d.op.Upstreams(d.ctx); err != nil || l.Items[0].Failures != 5 || l.Items[0].OpenUntil != database.Stamp(until) {
		t.Errorf("%+v %v", l.Items, err)
	}
	if err := process.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := d.op.Upstreams(d.ctx); err != nil || l.Items[0].Failures != 0 || l.Items[0].OpenUntil != "" {
		t.Errorf("its process has ended: %+v %v", l.Items, err)
	}
}

// TestToolsOwnError: a tool that answers with its own error does not make its server failing, and one that gives no
// answer does.
func TestToolsOwnError(t *testing.T) {
	l := openLifelike(t)
	for _, row := range []struct {
		answered bool
		health   string
	}{{true, "ok"}, {false, "failing"}} {
		d := l.question("github.list_issues", `{"repo":"a"}`, "os:1000", call.Session(id.New(id.Session)))
		f := facts.New()
		f.Status = facts.Failed
		r := call.Result{Status: facts.Failed, IsError: true, Answered: row.answered, Facts: f}
		if _, err := l.r.Outcome(l.ctx, d, r); err != nil {
			t.Fatal(err)
		}
		all, err := l.op.Upstreams(l.ctx)
		i := slices.IndexFunc(all.Items, func(u site.Upstream) bool { return u.Name == "github" })
		if err != nil || i < 0 || all.Items[i].Health != row.health {
			t.Errorf("answered %v: %+v %v", row.answered, all.Items, err)
		}
	}
}

// TestNotReached: an attempt that was allowed and did not connect is neither reached nor refused.
func TestNotReached(t *testing.T) {
	l := openLifelike(t)
	body, _ := json.Marshal(app.EgressBody{Server: "github", Sandbox: "s_1", Attempts: []facts.Attempt{
		{Host: "gone.example.com", Port: 443, Allowed: true, Why: "egress.resolve", Times: 1}}})
	if _, err := l.log.Append(l.ctx, audit.KindEgress, body, false); err != nil {
		t.Fatal(err)
	}
	for result, want := range map[string]bool{facts.Unreached: true, facts.Reached: false, facts.Refused: false} {
		all, err := l.op.Egress(l.ctx, site.EgressFilter{Result: result})
		has := slices.ContainsFunc(all.Items, func(e site.Egress) bool { return e.Host == "gone.example.com" })
		if err != nil || has != want || len(all.Items) == 0 {
			t.Errorf("%s: %+v %v", result, all.Items, err)
		}
	}
}
