package operator

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/frontend/console"
)

// chromium is a headless Chromium that a test drives over the DevTools protocol, through two pipes.
type chromium struct {
	t       *testing.T
	ctx     context.Context
	out     *os.File
	session string

	mu     sync.Mutex
	next   int
	wait   map[int]chan json.RawMessage
	faults []string // messages of the console: refused scripts, errors
}

// startChromium starts the Chromium of scripts/setup-chromium.sh, or skips the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "chromium", "chrome"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skip("no Chromium here: scripts/setup-chromium.sh unpacks one")
	}
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	c.ExtraFiles = []*os.File{toRead, fromWrite} // descriptors 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toRead.Close(), fromWrite.Close()
	b := &chromium{t: t, ctx: ctx, out: toWrite, wait: map[int]chan json.RawMessage{}}
	go b.read(fromRead)
	t.Cleanup(func() {
		cancel()
		_ = c.Wait()
		_, _ = toWrite.Close(), fromRead.Close()
	})
	var target struct{ TargetID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

func (b *chromium) read(f *os.File) {
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Result json.RawMessage
			Error  json.RawMessage
			Params json.RawMessage
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
			b.faults = append(b.faults, string(m.Params))
		}
		c := b.wait[m.ID]
		delete(b.wait, m.ID)
		b.mu.Unlock()
		if c != nil {
			if m.Error != nil {
				m.Result = json.RawMessage(`{"failed":` + string(m.Error) + `}`)
			}
			c <- m.Result
		}
	}
}

// do sends one command and decodes its result.
func (b *chromium) do(method string, params, into any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, c := b.next, make(chan json.RawMessage, 1)
	b.wait[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, _ := json.Marshal(m)
	if _, err := b.out.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	select {
	case r := <-c:
		if strings.HasPrefix(string(r), `{"failed":`) {
			b.t.Fatalf("%s: %s", method, r)
		}
		if into != nil {
			_ = json.Unmarshal(r, into)
		}
	case <-b.ctx.Done():
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval evaluates an expression in the page, and returns its value as text.
func (b *chromium) eval(js string) string {
	b.t.Helper()
	var r struct{ Result struct{ Value any } }
	b.do("Runtime.evaluate", map[string]any{
		"expression": js, "returnByValue": true, "awaitPromise": true, "userGesture": true,
	}, &r)
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to be true.
func (b *chromium) until(js string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b.eval("!!("+js+")") == "true" {
			return
		}
	}
	b.t.Fatalf("not true in 30 s: %s\n%s\n%s", js, b.eval("document.body.innerText"), b.faults)
}

func (b *chromium) visit(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.until("document.readyState === 'complete' && location.href !== 'about:blank'")
}

// picture keeps a screenshot where $WALDO_PICTURES names a folder.
func (b *chromium) picture(name string) {
	dir := os.Getenv("WALDO_PICTURES")
	if dir == "" {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int{1200, 390} {
			b.do("Emulation.setEmulatedMedia",
				map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": theme}}}, nil)
			b.do("Emulation.setDeviceMetricsOverride",
				map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
			var shot struct{ Data string }
			b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
			png, _ := base64.StdEncoding.DecodeString(shot.Data)
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, theme, width)), png, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// narrow reports whether the page fits a phone without scrolling sideways.
func (b *chromium) narrow() bool {
	b.do("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": true}, nil)
	ok := b.eval("document.documentElement.scrollWidth <= 390") == "true"
	b.do("Emulation.clearDeviceMetricsOverride", nil, nil)
	return ok
}

// TestChromium: log in by link, enrol with Chromium's virtual authenticator, approve by key, deny, and meet a hostile
// agent's texts, in a real browser.
func TestChromium(t *testing.T) {
	b := startChromium(t)
	d := open(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: d.web}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	at := "http://localhost:" + port
	b.do("WebAuthn.enable", nil, nil)
	b.do("WebAuthn.addVirtualAuthenticator",
		map[string]any{"options": map[string]any{"protocol": "ctap2", "transport": "internal",
			"hasResidentKey": true, "hasUserVerification": true, "isUserVerified": true, "automaticPresenceSimulation": true}},
		nil)

	// Enrol, before any login, by an address that leads to the name.
	invite := Invite{Name: "ann", Roles: []string{"manager"}, By: "ann"}
	secret, err := NewInvite(d.ctx, d.store, invite)
	if err != nil {
		t.Fatal(err)
	}
	b.visit("http://127.0.0.1:" + port + "/enrol")
	if got := b.eval("location.origin"); got != at {
		t.Fatalf("origin %s", got)
	}
	b.eval("document.querySelector('#secret').value = '" + secret + "'; document.querySelector('#enrol').requestSubmit()")
	b.until("document.querySelector('#status').textContent.startsWith('Done here')")
	b.picture("enrol")
	a, sig, err := Enrolled(d.ctx, d.store, secret, invite)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.eval("document.querySelector('#status').textContent"), a.Fingerprint()) {
		t.Error("the page does not show the fingerprint that the terminal shows")
	}
	if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
		t.Fatal(err)
	}

	token, err := NewLink(d.ctx, d.store, console.RoleApprover)
	if err != nil {
		t.Fatal(err)
	}
	b.visit(at + "/login#" + token)
	b.until("location.pathname === '/approvals' && document.querySelector('#live')")
	b.until("document.body.innerText.includes('Nothing waits')")

	// A question appears without a reload; the keyboard opens it and approves it.
	hostile := "<script>document.title='owned'</script>\\u001b[2J\\u202egpj.exe<img src=x " +
		"onerror=\\\"document.title='owned'\\\">"
	p := d.decide(`{"cmd":"`+hostile+`","path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.By = "manager" })
	_, waiting := d.ask(p)
	b.until("document.querySelector('.inbox a')")
	b.picture("approvals")
	key := func(k string) {
		b.eval(fmt.Sprintf("(document.activeElement || document.body).dispatchEvent(new KeyboardEvent('keydown', {key: %q, "+
			"bubbles: true}))", k))
	}
	key("j")
	if got := b.eval("document.activeElement.getAttribute('href')"); got != "/approvals/"+waiting {
		t.Fatalf("j leads to %s", got)
	}
	b.eval("document.activeElement.click()")
	b.until("location.pathname === '/approvals/" + waiting + "' && document.querySelector('#answer')")
	if got := b.eval("document.title"); strings.Contains(got, "owned") ||
		strings.Contains(b.eval("document.body.innerText"), "\u202e") {
		t.Errorf("the agent's text acts: %s", got)
	}
	b.picture("approval")
	if !b.narrow() {
		t.Error("the page of a question scrolls sideways on a phone")
	}
	key("a")
	b.until("document.querySelector('#status').textContent.startsWith('Taken')")
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
	b.picture("compared")
	key("d")
	b.until("document.querySelector('#status').textContent.includes('no')")
	if answer, _ := d.ask(next); answer == nil || answer.Yes {
		t.Errorf("%+v", answer)
	}
	for _, page := range []string{"calls", "sessions", "sandboxes", "servers", "pins", "log"} {
		b.visit(at + "/" + page)
		b.until("document.querySelector('nav a[aria-current]') || location.pathname === '/pins'")
		b.picture(page)
		if !b.narrow() {
			t.Errorf("/%s scrolls sideways on a phone", page)
		}
	}
	if v := d.verify(); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		t.Errorf("the browser complains: %s", b.faults)
	}
}
