package approval

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// The screen shows the changes since the last approved call, as lines of the agent. No change is signed.
func TestShowSaysWhatChanged(t *testing.T) {
	h := newFixture(t)
	first := decide(t, `{"to":"ann","body":"hi","bcc":"bob"}`)
	id := h.want(t, first, "waiting")
	h.say(t, id, true)
	h.want(t, first, "yes")
	h.pass(time.Second)
	q, _, err := h.Question(ctx, h.want(t, decide(t, `{"to":"eve\nEnd of the arguments","body":"hi","cc":"x"}`), "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(q.Show(), "CHANGED") {
		t.Error("control: compared with nothing")
	}
	got := h.Since(ctx, q)
	for _, want := range []string{
		"The last approved call of this capability is " + id, "by ann). Since then CHANGED:\n",
		`  | ~ to = "eve\nEnd of the arguments", which was "ann"` + "\n", `  | + cc = "x"` + "\n",
		`  | - bcc, which was "bob"` + "\n",
	} {
		if !strings.Contains(got.Show(), want) {
			t.Errorf("%q is missing:\n%s", want, got.Show())
		}
	}
	if strings.Contains(got.Show(), "~ body") || got.Digest() != q.Digest() {
		t.Errorf("what stayed is no change, and the digest is the question's:\n%s", got.Show())
	}
}

// A call is compared with calls of the same principal under the same file of contracts, and with no other.
func TestCallsOfAnotherProjectAreNotCompared(t *testing.T) {
	h := newFixture(t)
	question := func(file, who, args string) (policy.Decision, string) {
		d := decide(t, args)
		d.Contract.At.File, d.Call.Principal = file, call.Principal(who)
		return d, h.want(t, d, "waiting")
	}
	d, first := question("/a/waldo.yaml", "os:1000", `{"path":"x"}`)
	h.say(t, first, true)
	h.want(t, d, "yes")
	for _, c := range []struct {
		file, who string
		compared  bool
	}{
		{"/a/waldo.yaml", "os:1000", true}, // control
		{"/b/waldo.yaml", "os:1000", false},
		{"", "os:1000", false},
		{"/a/waldo.yaml", "os:1001", false},
	} {
		h.pass(time.Second)
		_, n := question(c.file, c.who, `{"path":"y"}`)
		q, _, err := h.Question(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(h.Since(ctx, q).Show(), "The last approved call of this capability is "+first); got != c.compared {
			t.Errorf("%s by %s: compared %t", c.file, c.who, got)
		}
	}
}

// A host is shown what its own session was allowed before, and nothing of other sessions.
func TestAHostSeesItsOwnChanges(t *testing.T) {
	h := newFixture(t)
	h.about.rules = func() contract.Approvals {
		return contract.Approvals{Timeout: time.Hour, Carriers: []string{"elicitation"}}
	}
	text := ""
	agree := func(session, args string) {
		d := decide(t, args)
		d.Call.Session, d.Contract.Approval.By = "n_one", ""
		if session != "" {
			d.Call.Session = "n_two"
		}
		id := h.want(t, d, "waiting")
		ok := false
		if text, ok = h.Put(ctx, d.Call.Session, id); !ok {
			t.Fatal("not put")
		}
		if err := h.Said(ctx, d.Call.Session, id, true); err != nil {
			t.Fatal(err)
		}
		h.want(t, d, "yes")
	}
	agree("", `{"path":"/secret/one"}`)
	agree("two", `{"path":"/work/b"}`)
	if strings.Contains(text, "/secret/one") || strings.Contains(text, "CHANGED") {
		t.Errorf("another session's call is shown:\n%s", text)
	}
	agree("two", `{"path":"/work/c"}`)
	if !strings.Contains(text, `  | ~ path = "/work/c", which was "/work/b"`) {
		t.Errorf("its own call is not compared:\n%s", text)
	}
}

// named is a carrier that notes what it carries.
type named struct {
	name string
	mu   sync.Mutex
	got  []string
}

func (c *named) Name() string { return c.name }
func (c *named) Notify(_ context.Context, q Question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, q.ID)
}

// A call that joins an older question says so at its terminal, once. Other carriers have told of it before.
func TestJoiningAQuestionIsTold(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	id := h.want(t, d, "waiting")
	term, chat := &named{name: Terminal}, &named{name: "notify"}
	h.Carriers = []Notifier{term, chat}
	h.restart(t) // another process
	h.Carriers = []Notifier{term, chat}
	for range 3 {
		h.want(t, d, "waiting")
	}
	h.Told(time.Minute)
	if !slices.Equal(term.got, []string{id}) || len(chat.got) != 0 {
		t.Errorf("terminal %v, chat %v", term.got, chat.got)
	}
	h.pass(2 * time.Hour)
	next := h.want(t, d, "waiting")
	h.want(t, d, "waiting")
	h.Told(time.Minute)
	if !slices.Equal(term.got, []string{id, next}) || !slices.Equal(chat.got, []string{next}) {
		t.Errorf("a new question: terminal %v, chat %v", term.got, chat.got)
	}
}
