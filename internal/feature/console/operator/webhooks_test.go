package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
	"waldo/internal/storage/inbox"
)

// events changes deliveries as the feature of webhooks does: each change is recorded before and after.
type events struct {
	queue *inbox.Queue
	log   *audit.Log
}

func (e events) Retry(ctx context.Context, id, by string) (*inbox.Delivery, error) {
	return e.act(ctx, id, "retried", by, e.queue.Retry)
}

func (e events) Drop(ctx context.Context, id, by string) (*inbox.Delivery, error) {
	return e.act(ctx, id, "dropped", by, e.queue.Drop)
}

func (e events) act(
	ctx context.Context, id, event, by string, change func(context.Context, string) error,
) (*inbox.Delivery, error) {
	d, err := e.queue.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	record := func(result string) error {
		b, _ := json.Marshal(map[string]string{"event": event, "result": result, "principal": by})
		_, err := e.log.Append(ctx, inbox.Kind, b, true)
		return err
	}
	if err := record("begun"); err != nil {
		return nil, err
	}
	result, err := "done", change(ctx, id)
	if err != nil {
		result = "refused"
	}
	return d, errors.Join(err, record(result))
}

// hostileText is a text of a sender that tries to be markup, a terminal code and another direction.
const hostileText = "<script>document.title='owned'</script>\x1b[2J\u202egpj.exe"

// webhooks gives a desk a dead webhook of each target, one that waits, and records of them and of refused requests.
func (l *lifelike) webhooks() {
	l.t.Helper()
	for i, d := range []*inbox.Delivery{
		{Hook: "pay", Target: inbox.Tool, Work: "c_1"}, {Hook: "github", Target: inbox.Agent},
		{Hook: "hooks.example.com", Target: inbox.Out},
	} {
		d.Body = []byte(`{"secret-of-the-payload": true}`)
		d.About = inbox.About{At: time.Now(), Event: hostileText, ContentType: "application/json", URL: "https://hooks.example.com/T0K3N"}
		if err := l.op.o.Webhooks.Add(l.ctx, d); err != nil {
			l.t.Fatal(err)
		}
		if err := l.op.o.Webhooks.Fail(l.ctx, d, inbox.Failure{Reason: "the receiver answered 503", Final: i == 0}); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, e := range []string{
		`{"event":"received","hook":"pay","delivery_id":"h_1"}`, `{"event":"received","hook":"pay","delivery_id":"h_2"}`,
		`{"event":"delivered","hook":"pay","target":"tool","delivery_id":"h_1"}`,
		`{"event":"dead","hook":"pay","target":"tool","delivery_id":"h_2","reason":"denied"}`,
		`{"event":"refused","hook":"pay","reason":"replay","count":2}`,
		`{"event":"refused","hook":"pay","reason":"signature","count":41}`,
		`{"event":"queued","hook":"hooks.example.com","target":"out","delivery_id":"h_3"}`,
		`{"event":"retry","hook":"hooks.example.com","target":"out","reason":"the receiver answered 503"}`,
	} {
		if _, err := l.log.Append(l.ctx, inbox.Kind, []byte(e), false); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestWebhooks: the counts are those of the log, by sender and receiver; a body and an address are never sent.
func TestWebhooks(t *testing.T) {
	l := openLifelike(t)
	b := l.login(site.RoleViewer)
	var all site.List[site.Webhook]
	if status, code := b.do("GET", "/api/v1/webhooks", nil, &all); status != http.StatusOK {
		t.Fatal(status, code)
	}
	var got []string
	for _, w := range all.Items {
		got = append(got, fmt.Sprint(w.Name, w.Out, w.Scheme, w.Target, w.Accepted, w.Delivered, w.Retries, w.Dead, w.Refused, w.Why))
	}
	want := []string{"githubfalsegithubagent0 0 0 0 []", "payfalsestripehelpdesk.refund2 1 0 1 [{signature 41} {replay 2}] denied",
		"hooks.example.comtrue1 0 1 0 []the receiver answered 503"}
	for i := range want {
		if len(got) != len(want) || strings.ReplaceAll(got[i], " ", "") != strings.ReplaceAll(want[i], " ", "") {
			t.Fatalf("%q", got)
		}
	}
	var raw json.RawMessage
	for _, path := range []string{"/api/v1/deliveries", "/api/v1/webhooks"} {
		if _, code := b.do("GET", path, nil, &raw); strings.Contains(string(raw), "secret-of-the-payload") ||
			strings.Contains(string(raw), "T0K3N") || code != "" {
			t.Errorf("%s shows %s %s", path, raw, code)
		}
	}
	if status, code := b.do("GET", "/api/v1/deliveries?state=x", nil, nil); status != 400 || code != "state" {
		t.Error(status, code)
	}
	var first, rest site.List[site.Delivery]
	b.do("GET", "/api/v1/deliveries?limit=2", nil, &first)
	b.do("GET", "/api/v1/deliveries?limit=2&cursor="+first.Next, nil, &rest)
	if len(first.Items) != 2 || len(rest.Items) != 1 || first.Total != 3 || rest.Next != "" ||
		rest.Items[0].ID <= first.Items[1].ID {
		t.Errorf("%+v %+v", first, rest)
	}
}

// TestWebhookActs: retry and drop change the queue, and leave the records of the command line beside the console's.
func TestWebhookActs(t *testing.T) {
	l := openLifelike(t)
	dead := func() []site.Delivery {
		all, err := l.op.Deliveries(l.ctx, "dead", site.Page{Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		return all.Items
	}
	one := dead()[0].ID
	viewer, b := l.login(site.RoleViewer), l.login(site.RoleOperator)
	if status, code := viewer.do("POST", "/api/v1/deliveries/"+one+"/drop", map[string]any{}, nil); status != 403 || code != "role" {
		t.Error("a viewer:", status, code)
	}
	if len(dead()) != 1 {
		t.Fatal("a viewer dropped it")
	}
	if status, code := b.do("POST", "/api/v1/deliveries/"+one+"/retry", map[string]any{}, nil); status != 200 {
		t.Fatal(status, code)
	}
	if len(dead()) != 0 {
		t.Error("it is not retried")
	}
	d, err := l.op.o.Webhooks.Claim(l.ctx, inbox.Tool)
	if d == nil || err != nil || d.ID != one {
		t.Fatal(d, err)
	}
	if status, code := b.do("POST", "/api/v1/deliveries/"+one+"/drop", map[string]any{}, nil); status != 409 || code != "webhook.held" {
		t.Error("one that waldo works on:", status, code)
	}
	if err := l.op.o.Webhooks.Fail(l.ctx, d, inbox.Failure{Final: true, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if status, code := b.do("POST", "/api/v1/deliveries/"+one+"/drop", map[string]any{}, nil); status != 200 {
		t.Error(status, code)
	}
	if status, code := b.do("POST", "/api/v1/deliveries/"+one+"/drop", map[string]any{}, nil); status != 404 || code != "webhook.unknown" {
		t.Error("one that is gone:", status, code)
	}
	var got []string
	_, err = audit.Select(l.ctx, audit.Dir(l.dir), audit.Selection{}, func(r audit.Record) error {
		var e struct{ Event, Action, Result, Principal string }
		if json.Unmarshal(r.Body, &e) == nil && e.Result != "" && (r.Kind == inbox.Kind || strings.HasPrefix(e.Action, "webhook.")) {
			if e.Principal != "link" {
				t.Errorf("%s: principal %q", r.Body, e.Principal)
			}
			got = append(got, r.Kind+" "+e.Event+e.Action+" "+e.Result)
		}
		return nil
	})
	each := func(action, event, result string) []string {
		return []string{"console webhook." + action + " begun", "webhook " + event + " begun", "webhook " + event + " " + result,
			"console webhook." + action + " " + result}
	}
	want := slices.Concat(each("retry", "retried", "done"), each("drop", "dropped", "refused"), each("drop", "dropped", "done"),
		[]string{"console webhook.drop begun", "console webhook.drop refused"})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q", err, got)
	}
}

// TestHookCounts: names that a sender can choose do not fill the memory.
func TestHookCounts(t *testing.T) {
	all := hookCounts{}
	for i := range maxHooks + 10 {
		body, _ := json.Marshal(map[string]any{"event": "refused", "hook": fmt.Sprint("h", i), "reason": "unknown"})
		all.count(audit.Record{Kind: inbox.Kind, Body: body})
	}
	if len(all) != maxHooks {
		t.Errorf("%d names", len(all))
	}
}
