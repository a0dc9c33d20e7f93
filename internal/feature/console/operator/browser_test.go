package operator

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/core/policy"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
)

// listen serves the console on loopback.
func (d *desk) listen() (port, at string) {
	d.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	srv := &http.Server{Handler: d.web}
	go func() { _ = srv.Serve(l) }()
	d.t.Cleanup(func() { _ = srv.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, "http://localhost:" + port
}

// enter logs a browser in by a new link.
func (b *chromium) enter(d *desk, at string, role site.Role) {
	b.t.Helper()
	token, err := NewLink(d.ctx, d.store, role, "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.visit(at + "/login#" + token)
	b.until("location.pathname === '/' && document.querySelector('#live')")
}

// authenticator gives the browser Chromium's virtual authenticator, whose user is always there.
func (b *chromium) authenticator() {
	b.t.Helper()
	b.do("WebAuthn.enable", nil, nil)
	b.do("WebAuthn.addVirtualAuthenticator",
		map[string]any{"options": map[string]any{"protocol": "ctap2", "transport": "internal",
			"hasResidentKey": true, "hasUserVerification": true, "isUserVerified": true, "automaticPresenceSimulation": true}},
		nil)
}

// press sends a key to the element with the focus.
func (b *chromium) press(key string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("(document.activeElement || document.body).dispatchEvent(new KeyboardEvent('keydown', {key: %q, "+
		"bubbles: true}))", key))
}

// typed types the last word of a capability.
func (b *chromium) typed(word string) {
	b.t.Helper()
	b.eval("document.querySelector('#word').value = '" + word + "'; document.activeElement.blur()")
}

// quiet reports what the browser complained about: a refused script or style, an error.
func (b *chromium) quiet() { b.t.Helper(); b.quietBut() }

// quietBut is quiet where answers with some status codes are expected.
func (b *chromium) quietBut(codes ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		if !slices.ContainsFunc(codes, func(c string) bool { return strings.Contains(f, "status of "+c) }) {
			b.t.Errorf("the browser complains: %s", f)
		}
	}
}

// approver enrols the first approver, ann, with the browser's authenticator.
func (b *chromium) approver(d *desk, at string) {
	b.t.Helper()
	invite := enrolment.Invite{Name: "ann", By: "ann"}
	secret, err := enrolment.NewInvite(d.ctx, d.store, invite)
	if err != nil {
		b.t.Fatal(err)
	}
	b.visit(at + "/enrol")
	b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
	b.until("document.querySelector('#status').textContent.startsWith('Done here')")
	a, sig, err := enrolment.Enrolled(d.ctx, d.store, secret, invite)
	if err == nil {
		err = d.k.EnrollSigned(d.ctx, a, sig)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestChromium: log in by link, enrol with Chromium's virtual authenticator, approve by key, deny, and meet a hostile
// agent's texts, in a real browser.
func TestChromium(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	port, at := d.listen()
	b.authenticator()

	// Enrol, before any login, by an address that leads to the name.
	invite := enrolment.Invite{Name: "ann", Roles: []string{"manager"}, By: "ann"}
	secret, err := enrolment.NewInvite(d.ctx, d.store, invite)
	if err != nil {
		t.Fatal(err)
	}
	b.visit("http://127.0.0.1:" + port + "/enrol")
	if got := b.eval("location.origin"); got != at {
		t.Fatalf("origin %s", got)
	}
	b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
	b.until("document.querySelector('#status').textContent.startsWith('Done here')")
	b.inspect("enrol")
	a, sig, err := enrolment.Enrolled(d.ctx, d.store, secret, invite)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.eval("document.querySelector('#status').textContent"), a.Fingerprint()) {
		t.Error("the page does not show the fingerprint that the terminal shows")
	}
	if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
		t.Fatal(err)
	}

	b.enter(d, at, site.RoleApprover)
	b.until("document.body.innerText.includes('Nothing waits') && document.body.innerText.includes('waldo install claude')")
	b.inspect("new")
	b.visit(at + "/approvals")

	// A question appears without a reload; the keyboard opens it and approves it.
	hostile := "<script>document.title='owned'</script>\\u001b[2J\\u202egpj.exe<img src=x " +
		"onerror=\\\"document.title='owned'\\\">"
	p := d.decide(`{"cmd":"`+hostile+`","path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.By = "manager" })
	_, waiting := d.ask(p)
	b.until("document.querySelector('.inbox a')")
	b.inspect("approvals")
	b.press("j")
	if got := b.eval("document.activeElement.getAttribute('href')"); got != "/approvals/"+waiting {
		t.Fatalf("j leads to %s", got)
	}
	b.eval("document.activeElement.click()")
	b.until("location.pathname === '/approvals/" + waiting + "' && document.querySelector('#answer')")
	if got := b.eval("document.title"); strings.Contains(got, "owned") ||
		strings.Contains(b.eval("document.body.innerText"), "\u202e") {
		t.Errorf("the agent's text acts: %s", got)
	}
	b.inspect("approval")
	b.typed("delete")
	b.press("a")
	b.until("document.querySelector('#status').textContent.startsWith('Taken') && !document.querySelector('#answer').checkVisibility()")
	if answer, _ := d.ask(p); answer == nil || !answer.Yes || answer.By != "approver:ann" {
		t.Fatalf("%+v", answer)
	}

	// The next call is compared with it, and denied.
	next := d.decide(`{"cmd":"ls","path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.By = "manager" })
	_, waiting = d.ask(next)
	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelector('tr.changed')")
	if got := b.eval("document.querySelectorAll('tr.changed').length"); got != "1" {
		t.Errorf("%s arguments are marked", got)
	}
	b.inspect("compared")
	b.press("d")
	b.until("document.querySelector('#status').textContent.includes('no')")
	if answer, _ := d.ask(next); answer == nil || answer.Yes {
		t.Errorf("%+v", answer)
	}
	b.visit(at + "/approvals/" + waiting) // it says who answered
	b.until("document.querySelector('main .pill.bad') && document.querySelector('main').innerText.includes('ann')")
	b.inspect("answered")
	if v := d.verify(); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	b.quiet()
}

// TestChromiumPages: axe-core finds nothing in any page of a console with a day's work, and each fits a phone.
func TestChromiumPages(t *testing.T) {
	b := startChromium(t)
	l := openLifelike(t)
	_, at := l.listen()
	b.visit(at + "/login")
	b.inspect("login")
	b.enter(l.desk, at, site.RoleOperator)
	for _, page := range []struct{ name, path, shows string }{
		{"inbox", "/approvals", "postgres.execute"}, {"question", "/approvals/" + l.asked, "delete from carts"},
		{"calls", "/calls", "github.get_file"}, {"call", "/calls/" + l.run, "telemetry.example.net"},
		{"denied", "/calls/" + l.refused, "denied"}, {"sessions", "/sessions", "oidc:ann@example.com"},
		{"start", "/", "Waits for you"}, {"session", "/sessions/" + l.session, "claude-code 2.1 in ~/shop"},
		{"server", "/servers/github", "github.delete_repo"}, {"egress", "/egress", "telemetry.example.net"},
		{"sandboxes", "/sandboxes", "release-notes"}, {"servers", "/servers", "helpdesk"}, {"webhooks", "/webhooks", "signature 41, replay 2"},
		{"contracts", "/contracts", "helpdesk.refund"}, {"usage", "/usage", "github.list_issues"},
		{"month", "/usage?period=month", "31 days"}, {"pins", "/pins", "create_issue"}, {"log", "/log", "Denied"},
		{"enrol", "/enrol", "terminal"}, {"absent", "/calls/c_none", "no such call"},
	} {
		b.visit(at + page.path)
		if text := b.eval("document.querySelector('main').innerText"); !strings.Contains(text, page.shows) {
			t.Errorf("%s does not show %q:\n%s", page.path, page.shows, text)
		}
		b.inspect(page.name)
		if title := b.eval("document.title"); strings.Contains(title, "owned") ||
			strings.Contains(b.eval("document.body.innerText"), "\u202e") {
			t.Errorf("%s: a server's text acts: %s", page.path, title)
		}
	}

	// Times are in the reader's zone, with UTC on pointing.
	b.do("Emulation.setTimezoneOverride", map[string]any{"timezoneId": "America/New_York"}, nil)
	b.visit(at + "/calls/" + l.run)
	b.until(`[...document.querySelectorAll('.life time')].every((t) => t.title === t.dateTime.replace('T', ' ').replace('Z', ' UTC') &&
		t.textContent.includes(new Date(t.dateTime).toLocaleTimeString('en-GB', {timeZone: 'America/New_York', hour: '2-digit', minute: '2-digit'})))`)
	b.do("Emulation.setTimezoneOverride", map[string]any{"timezoneId": ""}, nil)

	// Stop asks first, and its effect is seen.
	b.visit(at + "/sessions")
	b.eval(`document.querySelector('[popovertarget]').click()`)
	b.until(`document.querySelector(':popover-open').innerText.includes('?')`)
	b.inspect("stop")
	b.eval(`document.querySelector(':popover-open [popovertargetaction]').click()`)
	b.until(`!document.querySelector(':popover-open') && !document.body.innerText.includes('Let it in again')`)
	b.eval(`document.querySelector('[popovertarget]').click(); document.querySelector(':popover-open .stop').click()`)
	b.until(`document.readyState === 'complete' && document.querySelector('tbody .pill.bad') && document.body.innerText.includes('Let it in again')`)
	b.eval(`document.querySelector('[formaction$="/release"]').click()`)
	b.until(`document.readyState === 'complete' && !document.querySelector('tbody .pill.bad') && document.querySelector('[popovertarget]')`)

	// Try a call, and compare a changed configuration.
	b.visit(at + "/contracts")
	b.eval(`document.querySelector('[name=capability]').value = 'helpdesk.refund';
		document.querySelector('[name=args]').value = '{"amount": 640}';
		document.querySelector('form[action^="/contracts/dry-run"]').requestSubmit()`)
	b.until("document.querySelector('.result .effect-ask')")
	if text := b.eval("document.querySelector('.result').innerText"); !strings.Contains(text, "waldo.yaml:17") ||
		!strings.Contains(text, "args.amount > 100") {
		t.Errorf("the dry run says %s", text)
	}
	b.inspect("dry-run")
	b.eval(`document.querySelector('#text').value = document.querySelector('#text').value.replace('github.*:            {mode: ' +
		'read, approval: none', 'github.*:            {mode: read, approval: always');
		document.querySelector('form[action^="/contracts/what-if"]').requestSubmit()`)
	b.until("document.querySelector('.result table')")
	if text := b.eval("document.querySelector('.result').innerText"); !strings.Contains(text, "github.get_file") ||
		!strings.Contains(text, "it depends on arguments that the log has redacted: args.amount c_") {
		t.Errorf("what-if says %s", text)
	}
	b.inspect("what-if")
	if v := l.verify(); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	b.mu.Lock()
	b.faults = slices.DeleteFunc(b.faults, func(f string) bool { return strings.Contains(f, "status of 404") }) // the page absent
	b.mu.Unlock()
	b.quiet()
}

// TestChromiumSteady: under a steady stream of calls the open list goes on showing new ones, and asks for them a few
// times only.
func TestChromiumSteady(t *testing.T) {
	b := startChromium(t)
	l := openLifelike(t)
	_, at := l.listen()
	b.enter(l.desk, at, site.RoleViewer)
	b.visit(at + "/calls?session=n_steady")
	b.until("document.body.innerText.includes('No call fits')")
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				l.call("github.list_issues", `{}`, "os:1000", "n_steady", 1)
			}
		}
	}()
	rows := "document.querySelectorAll('tbody a').length"
	b.until(rows + " > 0")
	first := b.eval(rows)
	began := time.Now()
	b.until(rows + " > " + first)
	b.until(rows + " == 50")
	close(stop)
	<-done
	asked := b.eval("performance.getEntriesByType('resource').filter((e) => e.name.includes('/calls?')).length")
	if n, err := strconv.Atoi(asked); err != nil || n < 2 || time.Duration(n) > 3+time.Since(began)/time.Second {
		t.Errorf("the page asked %s times in %v", asked, time.Since(began))
	}
	b.visit(at + "/sessions") // it is live, too
	b.until("document.querySelector('tbody')")
	sessions := b.eval("document.querySelectorAll('tbody tr').length")
	l.call("github.list_issues", `{}`, "os:1000", "n_new", 1)
	b.until("document.querySelectorAll('tbody tr').length > " + sessions + " && document.querySelector('#count').textContent > " +
		sessions)
	if title := b.eval("document.title"); !strings.HasPrefix(title, "(3) Sessions") {
		t.Errorf("the title is now %s", title)
	}
	b.quiet()
}

// TestChromiumHeld: a person strikes out a row of a program's held calls, and the passkey signs the rest.
func TestChromiumHeld(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	_, at := d.listen()
	b.authenticator()
	b.approver(d, at)
	b.enter(d, at, site.RoleApprover)
	p := d.decide(`{"calls":[{"capability":"n.add","mode":"write","danger":2,"args":{"t":"a"}},`+
		`{"capability":"n.add","mode":"write","danger":2,"args":{"t":"<b>b</b>"},"preview":["+ <i>b</i>"]},`+
		`{"capability":"n.add","mode":"write","danger":2,"args":{"t":"c"}}]}`, func(p *policy.Decision) {
		p.Call.Capability, p.Danger, p.Reasons = approval.Held, 2, []call.Reason{{Code: approval.HeldCode, Text: "3 calls"}}
	})
	_, waiting := d.ask(p)
	b.visit(at + "/approvals/" + waiting)
	b.until("document.querySelectorAll('input[name=struck]').length === 3")
	b.eval("document.querySelector('input[name=struck][value=\"2\"]').click()")
	b.until("getComputedStyle(document.querySelectorAll('.held li b')[1]).textDecorationLine === 'line-through'")
	b.inspect("held")
	b.press("a")
	b.until("document.querySelector('#status').textContent.startsWith('Taken')")
	answer, _ := d.ask(p)
	if answer == nil || !answer.Yes || !slices.Equal(answer.Struck, []int{2}) {
		t.Fatalf("%+v", answer)
	}
	b.visit(at + "/approvals/" + waiting) // it says what was struck out
	b.until("document.querySelector('main').innerText.includes('without row 2') && document.querySelectorAll('.held li').length === 3")
	if v := d.verify(); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	b.quiet()
}
