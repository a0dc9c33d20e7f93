package a2a

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/core/delegation"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/testing/providertest"
)

// modelled is a bench with an agent, whose model makes the one call that its task is, and then repeats the result.
func modelled(t *testing.T) (b *bench, bob string, model *providertest.Server) {
	t.Helper()
	model = &providertest.Server{Script: func(a providertest.Ask) providertest.Turn {
		switch {
		case a.Task == "think" && a.Answers == 0:
			return providertest.Turn{Text: "thinking", Hold: 4 * time.Second,
				Calls: []providertest.Call{{Tool: "t__echo", Input: `{"text":"x"}`}}}
		case a.Answers == 0:
			return providertest.Turn{Calls: []providertest.Call{{Tool: strings.ReplaceAll(a.Task, ".", "__"),
				Input: `{"text":"x"}`}}}
		}
		return providertest.Turn{Text: "It said: " + a.Results[len(a.Results)-1].Text}
	}}
	llm := httptest.NewServer(model)
	t.Cleanup(llm.Close)
	b, bob = two(t, "}\nagent: {providers: [{kind: ollama, url: \""+llm.URL+"\", model: m}], a2a: {expose: true}")
	b.stop()
	text, err := os.ReadFile(b.file())
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "  t.read: {transport: direct, mode: read, approval: none, rules: [{when: \"principal == 'token:bob'\", deny: true, "+
		"reason: \"not for bob\"}]}\n"...)
	if err := os.WriteFile(b.file(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(b.file())
	return b, bob, model
}

// result is the text of what a task brought, or of its state.
func result(t Task) string {
	if len(t.Artifacts) == 0 {
		return said(t)
	}
	return *t.Artifacts[0].Parts[0].Text
}

// TestAgentSkill: a message starts the built-in agent. Its question is the task's, and its authority is that of the caller
// and of the agent: the stricter counts.
func TestAgentSkill(t *testing.T) {
	b, bob, _ := modelled(t)
	if _, card := b.do("GET", "/.well-known/agent-card.json", ""); !strings.Contains(card, `"agent:waldo"`) {
		t.Errorf("the card: %s", card)
	}
	asked := b.send(message("agent:waldo", "t.note"))
	if asked.Status.State != InputRequired || !strings.Contains(said(asked), "may t.note be called") ||
		!strings.Contains(said(asked), "by agent:waldo") || b.noted.Load() != 0 {
		t.Fatalf("%+v %s", asked, said(asked))
	}
	b.stop()
	b.start(b.file()) // the next waldo goes on with the same agent
	b.answer(true)
	done := b.until(asked.ID, Completed)
	if b.noted.Load() != 1 || !strings.Contains(result(done), "noted x") || done.Metadata["waldo/agent"] == nil ||
		done.Metadata["waldo/call_id"] != nil {
		t.Errorf("noted %d times: %s %+v", b.noted.Load(), result(done), done.Metadata)
	}
	refused := b.send(message("agent:waldo", "t.note"))
	b.answer(false)
	if no := b.until(refused.ID, Completed); !strings.Contains(result(no), "denied") || b.noted.Load() != 1 {
		t.Errorf("after a no, the model says: %s", result(no))
	}
	for why, row := range map[string]struct {
		who        *bench
		tool, want string
	}{
		"control: a tool that is not exposed": {b, "t.hidden", "It said: <data"},
		"denied by its contract":              {b, "t.ruled", "contract.deny"},
		"control: for ann":                    {b, "t.read", "read x"},
		"denied for bob":                      {b.as(bob), "t.read", "not for bob"},
	} {
		if r := row.who.send(message("agent:waldo", row.tool)); r.Status.State != Completed ||
			!strings.Contains(result(r), row.want) {
			t.Errorf("%s: %s %s", why, r.Status.State, result(r))
		}
	}
	var chains int
	if err := audit.Range(t.Context(), audit.Dir(b.state), 0, 1<<62, func(r audit.Record) error {
		if body := string(r.Body); r.Kind == audit.KindDecision && strings.Contains(body, `"agent:waldo"`) {
			if !strings.Contains(body, `"delegation":["dg_`) {
				t.Errorf("a call of the agent names no delegation: %s", body)
			}
			chains++
		}
		return nil
	}); err != nil || chains == 0 {
		t.Errorf("%d decisions, %v", chains, err)
	}
}

// TestAgentUnderDelegation: the agent has no more than the delegation that its task names, and its end ends the agent.
func TestAgentUnderDelegation(t *testing.T) {
	b, _, model := modelled(t)
	hand := func(depth int, allow ...contract.Pattern) (quoted, id string) {
		token, link, why, err := b.h.Delegate(t.Context(), "", "token:ann", delegation.Request{For: "token:ann",
			Lifetime: time.Hour,
			Bounds:   delegation.Bounds{Allow: allow, Danger: 3, Calls: 10, Depth: depth}})
		if err != nil || why != nil {
			t.Fatal(why, err)
		}
		return `"` + token + `"`, link.ID
	}
	task := func(text, token string) string {
		return strings.Replace(underToken("agent:waldo", token), `"text":"x"`, fmt.Sprintf(`"text":%q`, text), 1)
	}
	wide, _ := hand(1, "t.*")
	narrow, _ := hand(1, "t.echo")
	flat, _ := hand(0, "t.*")
	for why, row := range map[string]struct {
		token, tool string
		state       State
		want        string
	}{
		"control: within":     {wide, "t.hidden", Completed, "It said: <data"},
		"beyond":              {narrow, "t.hidden", Completed, "delegation.capability"},
		"without a depth":     {flat, "t.echo", Rejected, "delegation.depth"},
		"control: narrow too": {narrow, "t.echo", Completed, "echo x"},
	} {
		if r := b.send(task(row.tool, row.token)); r.Status.State != row.state || !strings.Contains(result(r)+said(r),
			row.want) {
			t.Errorf("%s: %s %s", why, r.Status.State, result(r)+said(r))
		}
	}
	ends, link := hand(1, "t.*")
	now := strings.TrimSuffix(task("think", ends), "}") + `,"configuration":{"returnImmediately":true}}`
	thinks := b.send(now)
	before := len(model.Asked())
	for end := time.Now().Add(10 * time.Second); len(model.Asked()) == before && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	s, err := app.OpenRecorded(t.Context(), b.state, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Revoke(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	if over := b.until(thinks.ID, Rejected); !strings.Contains(said(over), "delegation.revoked") {
		t.Errorf("%s", said(over))
	}
}

// TestAgentCanceled: a cancel ends the agent. The end of waldo does not: the next one goes on with it.
func TestAgentCanceled(t *testing.T) {
	b, _, model := modelled(t)
	think := func() Task {
		before := len(model.Asked())
		j := b.send(strings.TrimSuffix(message("agent:waldo", "think"), "}") + `,"configuration":{"returnImmediately":true}}`)
		for end := time.Now().Add(10 * time.Second); len(model.Asked()) == before && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		return j
	}
	ended, asked := think(), len(model.Asked())
	if _, code := b.rpc("CancelTask", `{"id":"`+ended.ID+`"}`); code != 0 {
		t.Fatal(code)
	}
	b.until(ended.ID, Canceled)
	time.Sleep(5 * time.Second) // the answer of the model would have come
	if n := len(model.Asked()); n != asked {
		t.Errorf("the model was asked %d times more", n-asked)
	}
	went := think()
	drain, asked = 100*time.Millisecond, len(model.Asked())
	defer func() { drain = 10 * time.Second }()
	b.stop()
	if n := len(model.Asked()); n != asked {
		t.Errorf("the end of waldo waited for the model, which was asked %d times more", n-asked)
	}
	b.start(b.file())
	if done := b.until(went.ID, Completed); !strings.Contains(result(done), "echo x") {
		t.Errorf("control: %s", result(done))
	}
}

// TestAgentTask: a task of somebody else is bounded, and needs an agent that is exposed.
func TestAgentTask(t *testing.T) {
	b, _, model := modelled(t)
	long := b.send(message("agent:waldo", strings.Repeat("long ", 60_000)))
	if long.Status.State != Rejected || !strings.Contains(said(long), "agent.task") || len(model.Asked()) > 0 {
		t.Errorf("%s %.200s", long.Status.State, said(long))
	}
	plain := newBench(t, "")
	if _, code := plain.rpc("SendMessage", message("agent:waldo", "x")); code != -32602 {
		t.Errorf("an agent that is not exposed: %d", code)
	}
	if r, err := plain.h.Give(t.Context(), app.Task{ID: call.Session(long.ID), Text: "x",
		By: "token:ann"}); err != nil || len(r.Why) != 1 ||
		r.Why[0].Code != "a2a.unexposed" {
		t.Errorf("%+v %v", r, err)
	}
}
