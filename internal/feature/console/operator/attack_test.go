package operator

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/feature/console/site"
	"waldo/internal/testing/passkeytest"
)

// TestExpired: an answer after the question's time is refused, also one that was begun in time.
func TestExpired(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(site.RoleApprover)
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
	var l struct{ Items []site.Approval }
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
	before := d.login(site.RoleApprover)
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
	d.web = site.New(site.Options{Backend: d.op, Hosts: []string{"localhost"}})
	if status, code := before.settle(waiting, "approve", c.Draft, signed); status != 401 || code != "login" {
		t.Errorf("the login from before: %d %s", status, code)
	}
	b := d.login(site.RoleApprover)
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
	b := d.login(site.RoleApprover)
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
		_, err := d.op.UseLink(d.ctx, site.Who{}, token)
		return err
	}
	used, err := NewLink(d.ctx, d.store, site.RoleOperator, "")
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
		b, _ := json.Marshal(link{Role: site.RoleOperator.String(), Expires: time.Now().Add(row.left)})
		if err := d.store.Put(d.ctx, links, enrolment.Digest(row.name), string(b)); err != nil {
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
	var l struct{ Items []site.Record }
	if d.login(site.RoleViewer).do("GET", "/api/v1/audit?kind=console&text=refused", nil, &l); len(l.Items) != 1 {
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
		i := enrolment.Invite{Name: name, By: "ann"}
		secret, err := enrolment.NewInvite(d.ctx, d.store, i)
		if err != nil {
			t.Fatal(err)
		}
		b.visit(at + "/enrol")
		b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
		b.until("document.querySelector('#status').textContent.startsWith('Done here')")
		a, sig, err := enrolment.Enrolled(d.ctx, d.store, secret, i)
		if err != nil {
			t.Fatal(err)
		}
		if name == "bob" {
			if err := d.k.EnrollSigned(d.ctx, a, sig); err == nil {
				t.Fatal("enrolled without the first approver's signature")
			}
			b.eval("document.querySelector('#rootsecret').value = '" + secret + "'; document.querySelector('#root').requestSubmit()")
			b.until("document.querySelector('#status').textContent.startsWith('Signed')")
			if sig, err = enrolment.RootSigned(d.ctx, d.store, secret); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
			t.Fatal(err)
		}
	}
	b.enter(d, at, site.RoleApprover)
	p := d.decide(`{"path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.Need = 2 })
	_, waiting := d.ask(p)
	say := func(name, want string) {
		t.Helper()
		b.visit(at + "/approvals/" + waiting)
		b.until("document.querySelector('#answer')")
		b.eval("document.querySelector('#as').value = '" + name + "'")
		b.typed("delete")
		b.press("a")
		b.until("document.querySelector('#status').textContent.includes(" + fmt.Sprintf("%q", want) + ")")
	}
	say("ann", "Taken")
	say("ann", "approval.same")
	if a, _ := d.ask(p); a != nil {
		t.Fatal("one person was enough")
	}
	b.until("document.querySelector('#state').textContent === 'pending, yes so far: ann'")
	b.inspect("two-people")
	say("bob", "Taken")
	if a, _ := d.ask(p); a == nil || !a.Yes || len(a.Also) != 1 {
		t.Errorf("%+v", a)
	}

	_, waiting = d.ask(d.decide(`{"path":"/b"}`, nil))
	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelector('#answer')")
	d.later.Store(int64(61 * time.Minute))
	b.typed("delete")
	b.press("a")
	b.until("document.querySelector('#status').textContent.includes('approval.expired')")
	b.visit(at + "/approvals/" + waiting)
	if b.eval("document.querySelector('#answer')") != "<nil>" || b.eval("document.querySelector('#state').textContent") != "expired" {
		t.Errorf("an expired question: %s", b.eval("document.body.innerText"))
	}
	b.inspect("expired")
}

// put writes a question into a row as a process of the same user can, with a binding that fits.
func (d *desk) put(approvalID string, q approval.Question) {
	d.t.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.store.Update(d.ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET binding = $1, question = $2 WHERE id = $3`, q.Binding(), string(text), approvalID)
		return err
	}); err != nil {
		d.t.Fatal(err)
	}
}

// TestChromiumSwap: the words of a question that stands in the row for a moment come into no open page, and end its
// form. A page of such a question cannot answer the real one.
func TestChromiumSwap(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	_, at := d.listen()
	b.authenticator()
	b.approver(d, at)
	b.enter(d, at, site.RoleApprover)
	p := d.decide(`{"path":"/a"}`, nil)
	_, waiting := d.ask(p)
	genuine, _, err := d.k.Question(d.ctx, waiting)
	if err != nil {
		t.Fatal(err)
	}
	fake := genuine
	fake.Danger, fake.Mode, fake.Notes = 1, "read", []string{"a harmless note"}
	text, dead := "document.querySelector('main').innerText", "document.querySelector('#dead').checkVisibility()"
	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelector('#answer').checkVisibility() && !document.querySelector('#dead').checkVisibility()")
	time.Sleep(time.Second) // the stream of events is open

	d.put(waiting, fake)
	_, _ = d.ask(d.decide(`{"path":"/event"}`, nil))
	b.until(dead)
	d.put(waiting, genuine)
	if shown := b.eval(text); strings.Contains(shown, "harmless") || !strings.Contains(shown, "danger 3 of 3") ||
		!strings.Contains(shown, "has changed") || b.eval("document.querySelector('#state').textContent") != "pending" {
		t.Errorf("the page is now %s", shown)
	}
	b.inspect("dead")
	_, _ = d.ask(d.decide(`{"path":"/event/2"}`, nil)) // the genuine one again does not bring the form back
	b.typed("delete")
	b.press("a")
	time.Sleep(2500 * time.Millisecond)
	if a, _ := d.ask(p); a != nil || b.eval(dead) != "true" || b.eval("document.querySelector('#status').textContent") != "" {
		t.Errorf("a dead form answers: %+v, %s", a, b.eval(text))
	}

	d.put(waiting, fake)
	b.visit(at + "/approvals/" + waiting)
	if shown := b.eval(text); !strings.Contains(shown, "a harmless note") {
		t.Fatalf("control: %s", shown)
	}
	d.put(waiting, genuine)
	b.press("a")
	b.until("document.querySelector('#status').textContent.includes('approval.changed') && " + dead)

	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelector('#answer')")
	b.press("a")
	if got := b.eval("document.activeElement.id + document.querySelector('#status').textContent"); got != "word" {
		t.Errorf("approved without a word: %s", got)
	}
	b.typed("read")
	b.press("a")
	b.until("document.querySelector('#status').textContent.includes('approval.word')")
	if a, _ := d.ask(p); a != nil {
		t.Fatalf("answered: %+v", a)
	}
	b.typed("delete")
	b.press("a")
	b.until("document.querySelector('#status').textContent.startsWith('Taken')")
	if a, _ := d.ask(p); a == nil || !a.Yes {
		t.Errorf("control: %+v", a)
	}
	b.quietBut("404", "403", "409")
}

// TestLinkOwner: the connection of another user of the machine logs in with no link of ours, also where the system does
// not tell whose it is. The link is spent, and the log names both.
func TestLinkOwner(t *testing.T) {
	d := open(t)
	peer := "1000"
	d.web = site.New(site.Options{Backend: d.op, Hosts: []string{"localhost"},
		Peer: func(*http.Request) string { return peer }})
	for _, row := range []struct {
		owner, peer string
		good        bool
	}{{"1000", "1000", true}, {"1000", "1004", false}, {"1000", "0", false}, {"1000", "unknown", false},
		{"1000", "", false}, {"", "33", true}, {"", "", true}, {"unknown", "unknown", true}} {
		token, err := NewLink(d.ctx, d.store, site.RoleOperator, row.owner)
		if err != nil {
			t.Fatal(err)
		}
		try := func() bool {
			r, _ := http.NewRequest("POST", "http://"+host+"/login", strings.NewReader("token="+token))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := &recorder{header: http.Header{}}
			d.web.ServeHTTP(w, r)
			return w.header.Get("Set-Cookie") != ""
		}
		if peer = row.peer; try() != row.good {
			t.Errorf("the link of %q, used by %q", row.owner, row.peer)
		}
		if peer = row.owner; try() {
			t.Errorf("the link of %q works after %q used it", row.owner, row.peer)
		}
	}
	if err := d.op.Audit(d.ctx, site.Who{}, site.Event{Action: "end"}); err != nil {
		t.Fatal(err)
	}
	var l struct{ Items []site.Record }
	d.web = site.New(site.Options{Backend: d.op, Hosts: []string{"localhost"}})
	d.login(site.RoleViewer).do("GET", "/api/v1/audit?kind=console&text=link.owner", nil, &l)
	if len(l.Items) != 4 {
		t.Errorf("the log has %d links of others", len(l.Items))
	}
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
	b.enter(l.desk, at, site.RoleOperator)

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
	b.until("location.pathname.startsWith('/sandboxes') && document.readyState === 'complete'")
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
