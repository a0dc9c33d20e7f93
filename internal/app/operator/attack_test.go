package operator

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval/passkey/passkeytest"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/console"
)

// TestExpired: an answer after the question's time is refused, also one that was begun in time.
func TestExpired(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(console.RoleApprover)
	p := d.decide(`{"path":"/a"}`, nil)
	_, waiting := d.ask(p)
	c, status, code := b.draft(waiting, "ann", "approve")
	if status != 200 {
		t.Fatalf("control: %d %s", status, code)
	}
	d.later.Store(int64(61 * time.Minute))
	if status, code := b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge)); status != 409 ||
		code != "approval.expired" {
		t.Errorf("begun in time: %d %s", status, code)
	}
	if _, status, code := b.draft(waiting, "ann", "approve"); status != 409 || code != "approval.expired" {
		t.Errorf("begun too late: %d %s", status, code)
	}
	var l struct{ Items []console.Approval }
	if b.do("GET", "/api/v1/approvals", nil, &l); len(l.Items) != 0 {
		t.Errorf("the inbox has %+v", l.Items)
	}
	if a, again := d.ask(p); a != nil || again == waiting {
		t.Errorf("%+v, %s", a, again)
	}
}

// TestRestart: when the console starts anew in the middle of a question, logins and drafts are gone, and the question
// waits for a new answer.
func TestRestart(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	before := d.login(console.RoleApprover)
	p := d.decide(`{"path":"/a"}`, nil)
	_, waiting := d.ask(p)
	c, status, code := before.draft(waiting, "ann", "approve")
	if status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	signed := key.Get(c.Options.Challenge)
	if err := d.op.Close(); err != nil {
		t.Fatal(err)
	}
	d.op = d.operator()
	d.web = console.New(console.Options{Backend: d.op, Hosts: []string{"localhost"}})
	if status, code := before.settle(waiting, "approve", c.Draft, signed); status != 401 || code != "login" {
		t.Errorf("the login from before: %d %s", status, code)
	}
	b := d.login(console.RoleApprover)
	if status, code := b.settle(waiting, "approve", c.Draft, signed); status != 409 || code != "draft.unknown" {
		t.Errorf("the draft from before: %d %s", status, code)
	}
	if a, _ := d.ask(p); a != nil {
		t.Fatalf("answered: %+v", a)
	}
	c, status, code = b.draft(waiting, "ann", "approve")
	if status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if status, code := b.settle(waiting, "approve", c.Draft, signed); status != 403 || code != "approval.not_enrolled" {
		t.Errorf("the signature from before: %d %s", status, code)
	}
	if c, status, code = b.draft(waiting, "ann", "approve"); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if status, code := b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge)); status != 200 {
		t.Errorf("control: %d %s", status, code)
	}
	if a, _ := d.ask(p); a == nil || !a.Yes {
		t.Errorf("%+v", a)
	}
}

// TestRequesterAnswers: who asked for a call does not approve it, and another person does.
func TestRequesterAnswers(t *testing.T) {
	d := open(t)
	ann := d.approver("ann", nil)
	bob := d.approver("bob", signer{"ann", ann})
	b := d.login(console.RoleApprover)
	p := d.decide(`{"path":"/a"}`, func(p *policy.Decision) { p.Call.Principal = "oidc:ann" })
	_, waiting := d.ask(p)
	say := func(name string, key *passkeytest.Authenticator) (int, string) {
		c, status, code := b.draft(waiting, name, "approve")
		if status != 200 {
			return status, code
		}
		return b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge))
	}
	if status, code := say("ann", ann); status != 403 || code != "approval.own" {
		t.Errorf("ann: %d %s", status, code)
	}
	if status, code := say("bob", ann); status != 403 || code != "approval.not_enrolled" {
		t.Errorf("ann as bob: %d %s", status, code)
	}
	if a, _ := d.ask(p); a != nil {
		t.Fatalf("answered: %+v", a)
	}
	if status, code := say("bob", bob); status != 200 {
		t.Errorf("control: %d %s", status, code)
	}
}

// TestStolenLink: a link that was used, or is older than ten minutes, is refused. The log has the attempt.
func TestStolenLink(t *testing.T) {
	d := open(t)
	try := func(token string) error {
		_, err := d.op.UseLink(d.ctx, token)
		return err
	}
	used, err := NewLink(d.ctx, d.store, console.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	if err := try(used); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := try(used); err == nil {
		t.Error("a used link logs in")
	}
	for _, row := range []struct {
		name string
		left time.Duration
		good bool
	}{{"fresh", time.Minute, true}, {"late", -time.Second, false}} {
		b, _ := json.Marshal(link{console.RoleOperator.String(), time.Now().Add(row.left)})
		if err := d.store.Put(d.ctx, links, digest(row.name), string(b)); err != nil {
			t.Fatal(err)
		}
		if err := try(row.name); (err == nil) != row.good {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	r, _ := http.NewRequest("POST", "http://"+host+"/login", strings.NewReader("token="+used))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := &recorder{header: http.Header{}}
	d.web.ServeHTTP(w, r)
	if w.status != 403 || w.header.Get("Set-Cookie") != "" {
		t.Errorf("%d %v", w.status, w.header)
	}
	var l struct{ Items []console.Record }
	if d.login(console.RoleViewer).do("GET", "/api/v1/audit?kind=console&text=refused", nil, &l); len(l.Items) != 1 {
		t.Errorf("the log has %d refused logins", len(l.Items))
	}
}

// recorder keeps the head of an answer.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// TestChromiumPeople: two people with passkeys of their own answer a question that needs both, the second one signed in
// by the first; an open page of a question whose time is over is refused.
func TestChromiumPeople(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	_, at := d.listen()
	b.authenticator()
	for _, name := range []string{"ann", "bob"} {
		i := Invite{Name: name, By: "ann"}
		secret, err := NewInvite(d.ctx, d.store, i)
		if err != nil {
			t.Fatal(err)
		}
		b.visit(at + "/enrol")
		b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
		b.until("document.querySelector('#status').textContent.startsWith('Done here')")
		a, sig, err := Enrolled(d.ctx, d.store, secret, i)
		if err != nil {
			t.Fatal(err)
		}
		if name == "bob" {
			if err := d.k.EnrollSigned(d.ctx, a, sig); err == nil {
				t.Fatal("enrolled without the first approver's signature")
			}
			b.eval("document.querySelector('#rootsecret').value = '" + secret + "'; document.querySelector('#root').requestSubmit()")
			b.until("document.querySelector('#status').textContent.startsWith('Signed')")
			if sig, err = RootSigned(d.ctx, d.store, secret); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
			t.Fatal(err)
		}
	}
	b.enter(d, at, console.RoleApprover)
	p := d.decide(`{"path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.Need = 2 })
	_, waiting := d.ask(p)
	say := func(name, want string) {
		t.Helper()
		b.visit(at + "/approvals/" + waiting)
		b.until("document.querySelector('#answer')")
		b.eval("document.querySelector('#as').value = '" + name + "'")
		b.press("a")
		b.until("document.querySelector('#status').textContent.includes(" + fmt.Sprintf("%q", want) + ")")
	}
	say("ann", "Taken")
	say("ann", "approval.same")
	if a, _ := d.ask(p); a != nil {
		t.Fatal("one person was enough")
	}
	b.until("document.body.innerText.includes('yes so far: ann')")
	b.inspect("two-people")
	say("bob", "Taken")
	if a, _ := d.ask(p); a == nil || !a.Yes || len(a.Also) != 1 {
		t.Errorf("%+v", a)
	}

	_, waiting = d.ask(d.decide(`{"path":"/b"}`, nil))
	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelector('#answer')")
	d.later.Store(int64(61 * time.Minute))
	b.press("a")
	b.until("document.querySelector('#status').textContent.includes('approval.expired')")
	b.visit(at + "/approvals/" + waiting)
	if b.eval("document.querySelector('#answer')") != "<nil>" || b.eval("document.querySelector('#state').textContent") != "expired" {
		t.Errorf("an expired question: %s", b.eval("document.body.innerText"))
	}
	b.inspect("expired")
}

// TestChromiumAttacks: a page of another origin, to which the browser sends the console's cookie as both are localhost,
// does nothing: its form, its script and its frame are refused.
func TestChromiumAttacks(t *testing.T) {
	b := startChromium(t)
	l := openLifelike(t)
	_, at := l.listen()
	evil, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form method="post" action="%s/sandboxes/analysis/pause"><input name="csrf" value="x"></form>
			<iframe id="frame" src="%s/approvals"></iframe>`, at, at)
	})}
	go func() { _ = srv.Serve(evil) }()
	t.Cleanup(func() { _ = srv.Close() })
	_, port, _ := net.SplitHostPort(evil.Addr().String())
	state := func() string {
		s, err := l.op.sandboxes.Get(l.ctx, "os:1000", "analysis")
		if err != nil {
			t.Fatal(err)
		}
		return string(s.State)
	}
	b.enter(l.desk, at, console.RoleOperator)

	b.visit("http://localhost:" + port + "/")
	b.until("document.querySelector('#frame')")
	b.mu.Lock()
	framed := strings.Join(b.faults, "\n")
	b.faults = nil
	b.mu.Unlock()
	if !strings.Contains(framed, "frame-ancestors") && !strings.Contains(framed, "X-Frame-Options") {
		t.Errorf("the frame is not refused: %s", framed)
	}
	if got := b.eval(`fetch('` + at + `/api/v1/approvals', {credentials: 'include'}).then(() => 'read', () => 'refused')`); got !=
		"refused" {
		t.Errorf("a script of another origin: %s", got)
	}
	b.eval(`fetch('` + at + `/api/v1/sandboxes/analysis/pause', {method: 'POST', mode: 'no-cors', credentials: 'include', ` +
		`headers: {'Content-Type': 'text/plain'}, body: '{}'}).then(() => 0, () => 0)`)
	b.eval("document.querySelector('form').submit()")
	b.until("location.pathname.startsWith('/sandboxes')")
	if text := b.eval("document.body.innerText"); !strings.Contains(text, "cross_site") || state() != "ready" {
		t.Errorf("a form of another origin: %s; the sandbox is %s", text, state())
	}

	b.visit(at + "/sandboxes")
	b.eval(`document.querySelector('[formaction="/sandboxes/analysis/pause"]').click()`)
	b.until(`document.querySelector('[formaction="/sandboxes/analysis/resume"]')`)
	if state() != "paused" {
		t.Errorf("control: the sandbox is %s", state())
	}
}
